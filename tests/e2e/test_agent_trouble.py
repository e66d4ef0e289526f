"""Node agents in trouble that lasts: tokens that end, a full disk, a wrong clock, many suites."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from nodeagent.ipc.names import prefix_of
from tests.e2e.agent_lab import BRISK, AgentLab, RunningAgent, is_up
from tests.e2e.cluster import Cluster
from tests.figures import Figure
from tests.harness import TestServices
from tests.integration.workers.live_user import eventually

# Enough to see a leak of one thing per suite; a thousand on demand.
CYCLES = int(os.environ.get("SUITE_CYCLES", "4"))
SHORT_TOKENS = {"MITOSIS_POLICY": f"{BRISK['MITOSIS_POLICY']},manager_access_s=6"}

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300 + 20 * CYCLES)]


@pytest.fixture(scope="module")
def lab(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentLab]:
    with Cluster(tmp_path_factory.mktemp("trouble"), environment=SHORT_TOKENS) as cluster:
        found = AgentLab(cluster)
        yield found
        found.close()


def test_an_agent_outlives_its_tokens(lab: AgentLab):
    suite = lab.suite(tags=["tokens"], settle_seconds=60)
    with lab.agent("tokens", "--tags", "tokens"):
        first = lab.sh(suite, "true")
        assert lab.user.ended(first, within_s=60)["outcome"] == "succeeded"
        eventually(lambda: lab.cluster.log("tokens").count("token_rotated") >= 3, within_s=60)
        second = lab.sh(suite, "true")
        assert lab.user.ended(second, within_s=60)["outcome"] == "succeeded"
        lab.post(f"/suites/{suite}/close", {})
        lab.wait_complete(suite)


def test_an_agent_whose_token_ended_while_it_was_down_comes_back(lab: AgentLab):
    suite = lab.suite(tags=["sleeper"])
    with lab.agent("sleeper", "--tags", "sleeper"):
        eventually(lambda: "link.up" in lab.cluster.log("sleeper"), within_s=60)
    time.sleep(7)  # longer than an access token lives
    with lab.agent("sleeper", "--tags", "sleeper"):
        task = lab.sh(suite, "true")
        assert lab.user.ended(task, within_s=60)["outcome"] == "succeeded"
        lab.wait_complete(suite)


def test_a_cancelled_suite_does_not_wait_for_its_preparation(lab: AgentLab, open_dir: Path):
    begun, cleaned = open_dir / "begun", open_dir / "cleaned"
    suite = lab.suite(
        tags=["waiting"],
        env_preparation={"args": ["sh", "-c", f"touch {begun}; sleep 600"], "timeout": "1h"},
        env_cleanup={"args": ["touch", str(cleaned)], "timeout": "1m"},
    )
    lab.sh(suite, "true")
    with lab.agent("waiting", "--tags", "waiting"):
        eventually(begun.exists, within_s=60)
        lab.post(f"/suites/{suite}/cancel", {"reason": "no", "cancel_running_tasks": True})
        eventually(cleaned.exists, within_s=60, what="what was begun is cleaned up")
        eventually(lambda: not lab.suite_info(suite)["active_managers"], within_s=60)


def test_a_clock_that_is_an_hour_fast_changes_nothing(lab: AgentLab, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(
        "import datetime, time_machine\n"
        "ahead = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)\n"
        "time_machine.travel(ahead, tick=True).start()\n"
    )
    suite = lab.suite(tags=["fast"])
    tasks = lab.submit(suite, [("sh", "-c", "sleep 0.2")] * 6)
    with lab.agent("fast", "--tags", "fast", path=tmp_path):
        for one in tasks:
            info = lab.user.ended(one, within_s=60)
            assert (info["outcome"], info["attempt"]) == ("succeeded", 1)
        lab.wait_complete(suite)
    stamps = [line for line in lab.cluster.log("fast").splitlines() if '"timestamp"' in line]
    assert stamps, "the agent wrote its log"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_work_directory_costs_the_task_and_not_the_agent(lab: AgentLab, open_dir: Path):
    disk = open_dir / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=192m,mode=755", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        suite = lab.suite(tags=["small"], workers=1)
        fill = 'dd if=/dev/zero of="$MITO_RESULT_DIR/big" bs=1M count=400 2>/dev/null'
        greedy = lab.sh(suite, fill)
        modest = lab.sh(suite, 'echo fine > "$MITO_RESULT_DIR/small"')
        with lab.agent("small", "--tags", "small", "--work-dir", str(disk)):
            assert lab.user.ended(greedy, within_s=90)["outcome"] == "failed"
            assert lab.user.ended(modest, within_s=90)["outcome"] == "succeeded"
            assert lab.user.archive(modest, "result")["result/small"] == b"fine\n"
            lab.wait_complete(suite)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def test_a_killed_coordinator_costs_no_task(lab: AgentLab, open_dir: Path):
    suite = lab.suite(tags=["steady"], workers=2, prefetch=8)
    tasks = lab.submit(
        suite, [("sh", "-c", f"sleep 1; echo ran >> {open_dir}/$MITO_TASK_UUID")] * 10
    )
    with lab.agent("steady", "--tags", "steady"):
        eventually(lambda: len(list(open_dir.iterdir())) >= 1, within_s=60)
        web = lab.cluster.child("web0")
        spec = web.spec
        lab.cluster.kill("web0")
        eventually(lambda: len(list(open_dir.iterdir())) >= 5, within_s=60, what="tasks go on")
        lab.cluster.revive(spec)
        eventually(lambda: is_up(lab.cluster.url), within_s=60)
        for one in tasks:
            info = lab.user.ended(one, within_s=120)
            # An answer that died with the coordinator held a claim nobody ran; it is made again.
            assert (info["outcome"], info["attempt"] <= 2) == ("succeeded", True)
        lab.wait_complete(suite)
    ran = {path.name: path.read_text() for path in open_dir.iterdir()}
    assert ran == dict.fromkeys(tasks, "ran\n")


def test_many_suites_leave_nothing_behind(lab: AgentLab, figure: Figure):
    with lab.agent("cycles", "--tags", "cycles") as agent:
        _cycle(lab)
        _cycle(lab)
        before = _belongings(agent)
        for _ in range(CYCLES):
            _cycle(lab)
        found = _at_rest(agent, before)
        assert found.pop("descriptors") == before.pop("descriptors")
        assert found == before
    assert not _segments(agent)
    figure("suites in a row without a leak", CYCLES, "suites", at_least=4)


def _cycle(lab: AgentLab) -> None:
    suite = lab.suite(
        tags=["cycles"],
        settle_seconds=0,
        env_preparation={"args": ["true"], "timeout": "1m"},
        env_cleanup={"args": ["true"], "timeout": "1m"},
    )
    lab.submit(suite, [("true",)] * 3)
    lab.post(f"/suites/{suite}/close", {})
    lab.wait_complete(suite)


def _belongings(agent: RunningAgent) -> dict[str, Any]:
    """What an idle agent holds: processes, descriptors, cgroups, files, shared memory."""
    process = psutil.Process(agent.child.pid)
    return {
        "processes": len(process.children(recursive=True)),
        "descriptors": _descriptors(agent.child.pid),
        "threads_below_20": int(process.num_threads() < 20),
        "slots": sum(1 for _ in Path("/sys/fs/cgroup").rglob(f"mitosis-*{agent.name}*/slot-*")),
        "files": sum(1 for path in agent.data_dir.rglob("*") if "sqlite" not in path.name),
        "segments": len(_segments(agent)),
    }


def _descriptors(pid: int) -> dict[str, int]:
    """What they lead to, without what names are made of, so that a failure says which was left."""
    kinds = Counter[str]()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            kinds[re.sub(r"[0-9a-fN]{2,}|[0-9]", "*", str(one.readlink()))] += 1
    return dict(kinds)


def _at_rest(agent: RunningAgent, wanted: dict[str, Any]) -> dict[str, Any]:
    """What it holds as soon as that is what it should, or after half a minute."""
    deadline = time.monotonic() + 30
    while (found := _belongings(agent)) != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def _segments(agent: RunningAgent) -> list[Path]:
    identity = json.loads((agent.data_dir / "identity.json").read_text())
    return list(Path("/dev/shm").glob(f"{prefix_of(UUID(identity['manager_uuid']))}*"))


def test_a_second_signal_ends_an_agent_that_is_still_at_work(lab: AgentLab):
    suite = lab.suite(tags=["stubborn"])
    lab.sh(suite, "sleep 600")
    agent = lab.start_agent("stubborn", "--tags", "stubborn")
    lab.cluster.expect_exit("stubborn")
    eventually(lambda: any(p.name() == "sleep" for p in agent.tree()), within_s=60)
    below = agent.tree()
    agent.child.signal(signal.SIGTERM)
    time.sleep(1)
    assert agent.child.poll() is None, "the first one lets tasks finish"
    agent.child.signal(signal.SIGTERM)
    eventually(lambda: agent.child.poll() is not None, within_s=20)
    eventually(lambda: not [p for p in below if p.is_running()], within_s=10)
    lab.post(f"/suites/{suite}/cancel", {"reason": "over", "cancel_running_tasks": True})
