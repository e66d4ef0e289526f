"""Which cgroups a host offers, from its mounts; and what is written into version 2 files."""

from pathlib import Path

import pytest

from mitosis_protocol.suites import ResourceLimits
from nodeagent.errors import ConfigInvalid, LimitsUnenforceable
from nodeagent.pool.attempt_group import AttemptGroup
from nodeagent.pool.cgroup_v1 import quota_of
from nodeagent.pool.host import find_hierarchies
from nodeagent.pool.sandbox import Identity, choose_sandbox
from nodeagent.pool.slots import GroupDir, SlotGroups, SlotTree

NOBODY = "CapEff:\t0000000000000000\n"
ROOT = "CapEff:\t000001ffffffffff\n"


class Host:
    """A made-up /proc and /sys."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.mounts: list[str] = []
        self.membership: list[str] = []

    def mount(self, kind: str, name: str, options: str, root: str = "/") -> Path:
        point = self.base / name
        point.mkdir(parents=True, exist_ok=True)
        escaped = str(point).replace(" ", "\\040")
        self.mounts.append(f"30 20 0:26 {root} {escaped} rw,nosuid shared:4 - {kind} x {options}")
        return point

    def find(self) -> list[tuple[int, tuple[str, ...], str]]:
        mountinfo, membership = self.base / "mountinfo", self.base / "cgroup"
        mountinfo.write_text("1 0 0:1 / / rw - ext4 /dev/sda rw\n" + "\n".join(self.mounts))
        membership.write_text("\n".join(self.membership))
        return [
            (each.version, each.controllers, str(each.own_group.relative_to(self.base)))
            for each in find_hierarchies(mountinfo, membership)
        ]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_version_2_with_controllers_is_found_where_the_agent_is(host: Host) -> None:
    group = host.mount("cgroup2", "cg", "rw") / "system.slice/mitosis.service"
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    host.membership = ["0::/system.slice/mitosis.service"]
    assert host.find() == [
        (2, ("memory", "pids", "cpu", "cpuset"), "cg/system.slice/mitosis.service")
    ]


def test_version_1_is_found_controller_by_controller(host: Host) -> None:
    host.mount("cgroup", "memory", "rw,memory")
    host.mount("cgroup", "cpu,cpuacct", "rw,cpu,cpuacct")
    host.mount("cgroup", "systemd", "rw,name=systemd")
    (host.base / "memory/jobs").mkdir()
    host.membership = ["3:memory:/jobs", "2:cpu,cpuacct:/", "1:name=systemd:/"]
    assert host.find() == [(1, ("memory",), "memory/jobs"), (1, ("cpu",), "cpu,cpuacct")]


def test_both_at_once_are_used_together_and_version_2_comes_first(host: Host) -> None:
    host.mount("cgroup", "pids", "rw,pids")
    (host.mount("cgroup2", "unified", "rw") / "cgroup.controllers").write_text("hugetlb\n")
    host.membership = ["8:pids:/", "0::/"]
    assert host.find() == [(2, (), "unified"), (1, ("pids",), "pids")]


def test_a_container_that_sees_its_group_as_the_root_of_the_mount_finds_itself(host: Host) -> None:
    host.mount("cgroup", "memory", "rw,memory", root="/docker/abc")
    (host.base / "memory/inner").mkdir()
    host.membership = ["4:memory:/docker/abc/inner"]
    assert host.find() == [(1, ("memory",), "memory/inner")]


def test_a_group_outside_the_mount_is_taken_for_the_mount_itself(host: Host) -> None:
    host.mount("cgroup", "with blank", "rw,memory", root="/docker/abc")
    host.membership = ["4:memory:/../other"]
    assert host.find() == [(1, ("memory",), "with blank")]


def test_no_cgroups_at_all_is_an_answer_too(host: Host) -> None:
    assert host.find() == []


def test_a_tree_without_hierarchies_says_why_it_can_do_nothing() -> None:
    tree = SlotTree("x", [])
    tree.open()
    assert not tree.can("memory")
    assert tree.trouble["memory"] == "no cgroup hierarchy has it"
    assert tree.ensure(0, None) == SlotGroups()
    assert tree.empty(0) == 0


def test_limits_that_no_group_can_enforce_are_refused() -> None:
    with pytest.raises(LimitsUnenforceable, match="memory"):
        AttemptGroup(SlotGroups()).begin(ResourceLimits(memory=1 << 30), 0)


def make_v2_group(base: Path, *, kernel_files: bool = True) -> GroupDir:
    texts = {
        "memory.max": "max",
        "memory.current": "0",
        "memory.events": "low 0\nhigh 0\nmax 4\noom 1\noom_kill 0\n",
        "memory.swap.max": "max",
        "pids.max": "max",
        "cpu.max": "max 100000",
        "cgroup.procs": "",
    }
    if kernel_files:
        texts |= {"memory.peak": "0", "pids.peak": "1"}
    for name, text in texts.items():
        (base / name).write_text(text)
    return GroupDir(str(base), 2, ("memory", "pids", "cpu", "cpuset"))


def test_version_2_files_get_limits_and_give_evidence(tmp_path: Path) -> None:
    group = AttemptGroup(SlotGroups((make_v2_group(tmp_path),)))
    group.begin(ResourceLimits(memory=1 << 26, cpus=1.5, pids=9), 0)
    written = {
        name: (tmp_path / name).read_text() for name in ("memory.max", "cpu.max", "pids.max")
    }
    assert written["memory.max"] == str(1 << 26)
    assert (tmp_path / "memory.swap.max").read_text().startswith("0")
    assert written["cpu.max"].startswith("150000 100000")
    assert written["pids.max"].startswith("10")  # nine, and the launcher
    (tmp_path / "memory.events").write_text("oom 2\noom_kill 1\noom_group_kill 0\n")
    (tmp_path / "memory.peak").write_text("67108864")
    (tmp_path / "pids.peak").write_text("6\n")
    evidence = group.finish(9)
    assert evidence.was_oom
    assert evidence.peak_memory_bytes == 67108864
    assert evidence.peak_pids == 5
    group.close()


def test_an_old_kernel_without_peaks_still_proves_the_kill(tmp_path: Path) -> None:
    group = AttemptGroup(SlotGroups((make_v2_group(tmp_path, kernel_files=False),)))
    group.begin(ResourceLimits(memory=1 << 26), 0)
    (tmp_path / "memory.events").write_text("oom_kill 3\n")
    evidence = group.finish(0)
    assert (evidence.was_oom, evidence.peak_memory_bytes, evidence.peak_pids) == (True, None, None)
    group.close()


@pytest.mark.parametrize(
    ("cpus", "quota"),
    [(2, (200_000, 100_000)), (0.5, (50_000, 100_000)), (0.002, (2_000, 1_000_000))],
)
def test_shares_of_a_processor_become_quotas_the_kernel_takes(
    cpus: float, quota: tuple[int, int]
) -> None:
    assert quota_of(cpus) == quota


def choose(tmp_path: Path, *, status: str, uid_map: str, user: str | None = None):
    (tmp_path / "status").write_text(status)
    (tmp_path / "uid_map").write_text(uid_map)
    return choose_sandbox("here", user, tmp_path / "status", tmp_path / "uid_map")


def test_a_privileged_agent_gives_every_slot_a_user_of_its_own(tmp_path: Path) -> None:
    sandbox = choose(tmp_path, status=ROOT, uid_map="0 0 4294967295\n")
    first, second = sandbox.identity(0), sandbox.identity(255)
    assert first is not None
    assert second is not None
    assert first.uid >= 1_000_000_000
    assert second.uid == first.uid + 255 < 2**31


def test_a_container_with_few_users_gets_some_of_those(tmp_path: Path) -> None:
    sandbox = choose(tmp_path, status=ROOT, uid_map="0 100000 65536\n")
    assert sandbox.identity(3) == Identity(60_603, 60_603)


def test_without_users_to_spare_or_privileges_the_reason_is_said(tmp_path: Path) -> None:
    crowded = choose(tmp_path, status=ROOT, uid_map="0 1000 1\n")
    plain = choose(tmp_path, status=NOBODY, uid_map="0 0 4294967295\n")
    for sandbox in (crowded, plain):
        assert sandbox.identity(0) is None
        assert sandbox.reason


def test_a_named_user_must_exist_and_must_not_be_root(tmp_path: Path) -> None:
    named = choose(tmp_path, status=ROOT, uid_map="0 0 4294967295\n", user="nobody")
    assert named.identity(0) is not None
    assert named.identity(0) == named.identity(7)
    for name in ("root", "no-such-user-here"):
        with pytest.raises(ConfigInvalid):
            choose(tmp_path, status=ROOT, uid_map="0 0 4294967295\n", user=name)
