"""What a task's command can reach of the agent and of its neighbours: nothing, when privileged."""

import asyncio
import os
import pwd
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from nodeagent.pool.launch import SlotPlan
from tests.fakes.pool_lab import PYTHON, LabWorker, PoolLab, running_pool

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Tries everything against the given pids and prints what worked.
ATTACK = """
import ctypes, os, signal, sys
pids = [int(word) for word in sys.argv[1:]]
libc = ctypes.CDLL(None, use_errno=True)
for pid in pids:
    for name in ("environ", "mem", "maps", "fd/0", "cwd", "exe", "io", "auxv"):
        try:
            path = f"/proc/{pid}/{name}"
            os.readlink(path) if name in ("cwd", "exe", "fd/0") else open(path, "rb").read(1)
            print("read", name, pid)
        except OSError:
            pass
    try:
        os.kill(pid, 0)
        print("signal", pid)
    except PermissionError:
        pass
    if libc.ptrace(16, pid, 0, 0) == 0:  # PTRACE_ATTACH
        print("ptrace", pid)
    try:
        os.sched_setaffinity(pid, os.sched_getaffinity(0))
        print("affinity", pid)
    except PermissionError:
        pass
try:
    os.setuid(0)
    print("setuid")
except PermissionError:
    pass
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def lab() -> AsyncIterator[PoolLab]:
    if os.getuid() != 0:
        pytest.skip("a user of its own for each slot needs root")
    # One that the agent has and that no command may keep.
    groups = os.getgroups()
    os.setgroups([*groups, 4242])
    try:
        async with running_pool() as lab:
            yield lab
    finally:
        os.setgroups(groups)


@pytest_asyncio.fixture(loop_scope="module")
async def worker(lab: PoolLab) -> LabWorker:
    return await lab.spawn()


async def output_of(worker: LabWorker, tmp_path: Path, *argv: str, **request: Any) -> str:
    output = tmp_path / "output"
    end = await worker.run(*argv, output=str(output), **request)
    text = await asyncio.to_thread(output.read_text)
    output.unlink()
    assert "error" not in end
    return text


async def test_neither_agent_nor_server_nor_worker_can_be_read_or_signalled(
    lab: PoolLab, worker: LabWorker, tmp_path: Path
) -> None:
    assert lab.pool._link is not None
    targets = [os.getpid(), lab.pool._link.pid, worker.pid]
    argv = (PYTHON, "-S", "-c", ATTACK, *map(str, targets))
    assert await output_of(worker, tmp_path, *argv) == ""


async def test_the_launcher_may_be_killed_but_not_read(worker: LabWorker, tmp_path: Path) -> None:
    launcher = psutil.Process(worker.pid).children()[0]
    found = await output_of(worker, tmp_path, PYTHON, "-S", "-c", ATTACK, str(launcher.pid))
    # Its commands are the same user; killing it only ends their own attempt.
    assert found.split("\n")[:-1] == [f"signal {launcher.pid}", f"affinity {launcher.pid}"]


async def test_a_task_of_another_slot_is_another_user(
    lab: PoolLab, worker: LabWorker, tmp_path: Path
) -> None:
    neighbour = await lab.spawn()
    neighbour.tell(argv=["sleep", "600"])
    async with asyncio.timeout(20):
        while len(lab.members(neighbour)) < 2:  # noqa: ASYNC110 - the kernel sends no event
            await asyncio.sleep(0.01)
    argv = (PYTHON, "-S", "-c", ATTACK, *map(str, lab.members(neighbour)))
    assert await output_of(worker, tmp_path, *argv) == ""
    neighbour.tell(stop=True)
    await neighbour.hear()


async def test_the_agents_files_are_out_of_reach(worker: LabWorker, tmp_path: Path) -> None:
    secret = tmp_path / "identity.json"
    secret.write_text("token")
    secret.chmod(0o600)
    for parent in secret.parents:
        if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    script = f"cat {secret}; echo x > {secret}; rm -f {secret}; mv {secret} {secret}.2; true"
    text = await output_of(worker, tmp_path, "sh", "-c", script)
    assert "token" not in text
    assert text.count("Permission denied") >= 3
    assert secret.read_text() == "token"


async def test_the_cgroup_cannot_be_left_nor_changed(
    lab: PoolLab, worker: LabWorker, tmp_path: Path
) -> None:
    groups = [Path(path) for path in lab.pool._tree.subtrees]
    if not groups:
        pytest.skip("no cgroups on this host")
    slot = worker.key.local_id
    tries = "; ".join(
        f"echo $$ > {group}/cgroup.procs && echo escaped;"
        f"echo max > {group}/slot-{slot}/pids.max && echo changed;"
        f"echo 1 > {group}/cgroup.kill && echo killed"
        for group in groups
    )
    text = await output_of(worker, tmp_path, "sh", "-c", f"{tries}; true")
    assert not {"escaped", "changed", "killed"} & set(text.split())


async def test_a_command_has_no_privilege_and_cannot_get_one(
    worker: LabWorker, tmp_path: Path
) -> None:
    text = await output_of(worker, tmp_path, "cat", "/proc/self/status")
    facts = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    uids = {int(uid) for uid in (facts["Uid"] + "\t" + facts["Gid"]).split()}
    assert len(uids) == 1
    assert uids.pop() >= 60_000
    assert facts["Groups"].strip() == ""
    assert facts["NoNewPrivs"] == "1"
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(facts[name], 16) == 0
    assert int(facts["SigBlk"], 16) == 0
    # Beyond these the C library keeps two for itself, and ignores them in what it starts.
    assert int(facts["SigIgn"], 16) & 0x7FFF_FFFF == 0


async def test_a_command_gets_exactly_its_environment_limits_and_descriptors(
    worker: LabWorker, tmp_path: Path
) -> None:
    probe = (
        "import os, resource as r; print(dict(os.environ)); print(os.getcwd());"
        "print(r.getrlimit(r.RLIMIT_CORE), r.getrlimit(r.RLIMIT_NOFILE));"
        "print(sorted(os.listdir('/proc/self/fd'))[:-1]); print(os.getsid(0) == os.getpid())"
    )
    env = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "ONLY": "this"}
    text = await output_of(worker, tmp_path, PYTHON, "-S", "-c", probe, env=env)
    lines = text.splitlines()
    assert lines[0] == str(env)
    assert lines[1] == "/"
    hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 524_288)
    assert lines[2] == f"(0, 0) (1024, {hard})"
    assert lines[3] == "['0', '1', '2']"
    assert lines[4] == "True"


async def test_an_environment_reaches_the_command_and_nobody_on_the_way(
    lab: PoolLab, worker: LabWorker, tmp_path: Path
) -> None:
    """A library or a start file of the user's must not be loaded by what starts his command."""
    loaded = tmp_path / "loaded"
    start_file = tmp_path / "start.sh"
    start_file.write_text(f"echo loaded >> {loaded}\n")
    start_file.chmod(0o644)
    env = {
        "PATH": os.defpath, "LD_PRELOAD": "/nonexistent/evil.so", "LD_LIBRARY_PATH": "/nonexistent",
        "PYTHONPATH": str(tmp_path), "PYTHONSTARTUP": str(start_file), "BASH_ENV": str(start_file),
        "ENV": str(start_file), "IFS": "/",
    }  # fmt: skip
    probe = f"/bin/cat /proc/self/environ | {PYTHON} -S -c 'import sys; print(sys.stdin.read())'"
    text = await output_of(worker, tmp_path, "sh", "-c", probe, env=env)
    assert "LD_PRELOAD=/nonexistent/evil.so" in text  # the command itself has all of it
    assert not loaded.exists()
    [launcher] = lab.members(worker)
    for pid in (launcher, worker.pid):
        # A kernel that shows less shows nothing of it either.
        seen = await asyncio.to_thread(Path(f"/proc/{pid}/environ").read_bytes)
        assert b"evil.so" not in seen
        assert b"start.sh" not in seen
        maps = await asyncio.to_thread(Path(f"/proc/{pid}/maps").read_text)
        assert "/nonexistent" not in maps


async def test_a_replaced_launcher_is_as_confined_as_the_first(
    lab: PoolLab, worker: LabWorker, tmp_path: Path
) -> None:
    before = await output_of(worker, tmp_path, "sh", "-c", "id; cat /proc/self/cgroup")
    await worker.shell("kill -9 $PPID; sleep 600")
    after = await output_of(worker, tmp_path, "sh", "-c", "id; cat /proc/self/cgroup")
    assert after == before
    assert lab.pool._link is not None
    targets = [os.getpid(), lab.pool._link.pid, worker.pid]
    argv = (PYTHON, "-S", "-c", ATTACK, *map(str, targets))
    assert await output_of(worker, tmp_path, *argv) == ""
    status = await output_of(worker, tmp_path, "grep", "NoNewPrivs", "/proc/self/status")
    assert status.split() == ["NoNewPrivs:", "1"]


async def test_a_named_user_runs_the_commands_of_every_slot(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("changing users needs root")
    async with running_pool(sandbox_user="nobody") as lab:
        for slot in (0, 1):
            worker = await lab.spawn(SlotPlan(slot))
            text = await output_of(worker, tmp_path, "id", "-u")
            assert int(text) == pwd.getpwnam("nobody").pw_uid


async def test_gpus_are_named_in_the_environment_that_commands_inherit(tmp_path: Path) -> None:
    async with running_pool(gpus=("0", "1"), use_cgroups=False) as lab:
        for slot, gpus, said in ((0, ("1",), "1"), (1, (), "")):
            worker = await lab.spawn(SlotPlan(slot, gpus=gpus), env={"PATH": os.defpath})
            text = await output_of(worker, tmp_path, "env", env=None)
            assert f"CUDA_VISIBLE_DEVICES={said}" in text.splitlines()
