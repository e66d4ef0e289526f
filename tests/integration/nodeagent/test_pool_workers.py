"""The life of workers in a pool: start, every kind of end, scaling, and nothing left behind."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from nodeagent.errors import SpawnFailed
from nodeagent.failures import ExitReason
from nodeagent.pool.launch import SlotPlan
from tests.fakes.pool_lab import PYTHON, LabWorker, PoolLab, running_pool
from tests.fakes.worker_process import living

pytestmark = pytest.mark.asyncio(loop_scope="module")

# A parent that exits at once, and a grandchild in a session of its own that ignores SIGTERM.
DAEMON = (
    "import os, signal, sys, time\n"
    "if os.fork(): sys.exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "time.sleep(600)\n"
)


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["cgroups", "none"])
async def lab(request: pytest.FixtureRequest) -> AsyncIterator[PoolLab]:
    async with running_pool(use_cgroups=request.param == "cgroups") as lab:
        yield lab
        assert lab.trouble == []


@pytest_asyncio.fixture(loop_scope="module")
async def worker(lab: PoolLab) -> LabWorker:
    return await lab.spawn()


def environment(marker: str) -> dict[str, str]:
    return {"PATH": os.defpath, "MARK": marker}


async def until_living(marker: str, count: int = 1) -> None:
    async with asyncio.timeout(20):
        while len(living(marker)) < count:  # noqa: ASYNC110 - the kernel sends no event for this
            await asyncio.sleep(0.01)


async def until_member(procs: str, pid: int) -> None:
    async with asyncio.timeout(20):
        while str(pid) not in Path(procs).read_text().split():  # noqa: ASYNC110, ASYNC240 - as above
            await asyncio.sleep(0.01)


async def test_a_worker_runs_commands_and_reports_their_status(worker: LabWorker) -> None:
    assert (await worker.shell("exit 3"))["status"] == 3 << 8
    assert (await worker.shell("kill -SEGV $$"))["status"] & 0x7F == signal.SIGSEGV
    assert (await worker.run("no-such-program-anywhere"))["status"] == 127 << 8
    assert (await worker.run("NAME=1", "sh", "-c", "exit $((NAME + 4))"))["status"] == 5 << 8


async def test_a_command_the_kernel_refuses_is_said_and_the_next_one_runs(
    worker: LabWorker,
) -> None:
    refused = await worker.run("true", "x" * 3_000_000)
    assert refused["error"] == "SpawnRefused"
    assert (await worker.run("true"))["status"] == 0


async def test_output_goes_to_the_file_and_can_be_opened_anew(
    worker: LabWorker, tmp_path: Path
) -> None:
    output = tmp_path / "out.log"
    await worker.shell("echo one; echo two >&2; echo three >> /dev/stdout", output=str(output))
    assert output.read_text() == "one\ntwo\nthree\n"


async def test_a_daemon_does_not_outlive_its_task(worker: LabWorker, marker: str) -> None:
    end = await worker.run(PYTHON, "-S", "-c", DAEMON, env=environment(marker))
    assert end["status"] == 0
    assert end["survivors"] == 0
    assert not living(marker)


async def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(
    worker: LabWorker, marker: str
) -> None:
    script = "(trap '' TERM; while :; do sleep 0.1; done) & setsid sleep 600 & wait"
    end = await worker.shell(script, env=environment(marker), timeout_s=0.3, grace_s=0.5)
    assert end["cause"] == "timed_out"
    assert not living(marker)
    assert (await worker.run("true"))["status"] == 0


async def test_a_command_that_kills_its_launcher_ends_and_the_worker_goes_on(
    lab: PoolLab, worker: LabWorker, marker: str
) -> None:
    for _ in range(3):
        script = "setsid sleep 600 & kill -9 $PPID; sleep 600"
        end = await worker.shell(script, env=environment(marker))
        assert end["status"] == signal.SIGKILL
        assert not living(marker)
        assert (await worker.run("true"))["status"] == 0
    assert worker.key not in [key for key, _ in lab.exits]


async def test_a_command_that_stops_its_launcher_is_still_ended_in_time(
    worker: LabWorker, marker: str
) -> None:
    script = "kill -STOP $PPID; exec sleep 600"
    end = await worker.shell(script, env=environment(marker), timeout_s=0.3)
    assert end["cause"] == "timed_out"
    assert not living(marker)
    assert (await worker.run("true"))["status"] == 0


async def test_kill_takes_the_whole_tree_and_the_slot_serves_the_next_worker(
    lab: PoolLab, worker: LabWorker, marker: str
) -> None:
    script = f"{PYTHON} -S -c '{DAEMON}'; sleep 600"
    worker.tell(argv=["sh", "-c", script], env=environment(marker))
    await until_living(marker, 2)
    lab.pool.kill(worker.key)
    assert await lab.exit_of(worker.key) == ExitReason(signal=signal.SIGKILL)
    assert not living(marker)
    assert lab.members(worker) == set()
    again = await lab.spawn(SlotPlan(worker.key.local_id), generation=2)
    assert (await again.run("true"))["status"] == 0


async def test_a_worker_whose_launcher_died_with_it_leaves_nothing(
    lab: PoolLab, worker: LabWorker, marker: str
) -> None:
    worker.tell(argv=["sh", "-c", "setsid sleep 600 & sleep 600"], env=environment(marker))
    await until_living(marker, 3)
    launcher = psutil.Process(worker.pid).children()[0]
    os.kill(worker.pid, signal.SIGSTOP)
    launcher.kill()
    lab.pool.kill(worker.key)
    await lab.exit_of(worker.key)
    assert not living(marker)


async def test_a_worker_that_is_told_nothing_more_ends_by_itself(
    lab: PoolLab, worker: LabWorker
) -> None:
    worker.close()
    assert await lab.exit_of(worker.key) == ExitReason(code=0)


async def test_workers_come_and_go_without_leaving_a_process_or_a_group(lab: PoolLab) -> None:
    server = psutil.Process(lab.pool._link.pid if lab.pool._link else 0)
    before = descriptors_of(os.getpid()), descriptors_of(server.pid), len(server.children(True))
    groups = len(lab.pool._tree.slot_ids())
    first = max((w.key.local_id for w in lab.workers), default=-1) + 1
    for generation in range(50):
        worker = await lab.spawn(SlotPlan(first), generation=generation)
        lab.pool.kill(worker.key)
        await lab.exit_of(worker.key)
        worker.close()
        await lab.pool.release_slots()
    # The server may just be looking through /proc, and a closed stream of ours goes with the next
    # turn of the loop.
    async with asyncio.timeout(20):
        while (  # noqa: ASYNC110 - the kernel sends no event for this
            descriptors_of(server.pid) > before[1]
            or len(server.children(True)) > before[2]
            or descriptors_of(os.getpid()) > before[0] + 2
        ):
            await asyncio.sleep(0.01)
    assert len(lab.pool._tree.slot_ids()) <= groups


async def test_whatever_a_hook_left_in_its_group_is_ended_and_nobody_else(
    lab: PoolLab, worker: LabWorker
) -> None:
    doors = await lab.pool.hook_group()
    if lab.settings.use_cgroups and not doors:
        pytest.fail("this host has cgroups and hooks have none")
    # Without our marks in its environment: only the group can know it.
    enter = "".join(f"echo 0 > {door}; " for door in doors)
    stray = await asyncio.create_subprocess_exec(
        *("env", "-i", "sh", "-c", f"{enter} exec sleep 600"), start_new_session=True
    )
    try:
        if doors:
            await until_member(doors[0], stray.pid)
            assert await lab.pool.empty_hook_group() == 0
            async with asyncio.timeout(20):
                assert await stray.wait() == -signal.SIGKILL
        else:
            assert await lab.pool.empty_hook_group() == 0
    finally:
        if stray.returncode is None:
            stray.kill()
            await stray.wait()
    assert (await worker.run("true"))["status"] == 0


async def test_three_hundred_attempts_leave_no_process_no_descriptor_and_no_group(
    lab: PoolLab, worker: LabWorker
) -> None:
    await worker.run("true")
    launcher = psutil.Process(worker.pid).children()[0]
    before = [descriptors_of(pid) for pid in (worker.pid, launcher.pid)]
    groups = count_groups(lab)
    for number in range(300):
        limits = {"pids": 20} if number % 3 else None
        end = await worker.run("true", limits=limits if lab.settings.use_cgroups else None)
        assert end["status"] == 0
    assert [descriptors_of(pid) for pid in (worker.pid, launcher.pid)] == before
    assert psutil.Process(worker.pid).children(recursive=True) == [launcher]
    assert count_groups(lab) == groups


async def test_sixteen_workers_start_at_once_and_each_is_small(lab: PoolLab) -> None:
    first = max((w.key.local_id for w in lab.workers), default=-1) + 1
    async with asyncio.timeout(60):
        workers = await asyncio.gather(*(lab.spawn(SlotPlan(first + n)) for n in range(16)))
    for worker in workers:
        tree = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children()]
        assert len(tree) == 2
        assert sum(process.memory_full_info().uss for process in tree) < 20_000_000
    ends = await asyncio.gather(*(worker.run("true") for worker in workers))
    assert [end["status"] for end in ends] == [0] * 16


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("exit:0", ExitReason(code=0)),
        ("exit:3", ExitReason(code=3)),
        ("signal:11", ExitReason(signal=11)),
        ("signal:15", ExitReason(signal=15)),
        ("raise", ExitReason(code=70)),
    ],
)
async def test_every_end_of_a_worker_has_its_reason(how: str, reason: ExitReason) -> None:
    target = "tests.fakes.slot_worker:end_badly"
    async with running_pool(target=target, use_cgroups=False) as lab:
        worker = await lab.spawn(env={"END": how}, connect=False)
        assert await lab.exit_of(worker.key) == reason


async def test_a_fork_server_that_cannot_start_is_a_failed_spawn() -> None:
    lab = PoolLab(target="tests.fakes.slot_worker:no_such_function", use_cgroups=False)
    with pytest.raises(SpawnFailed):
        await lab.pool.open()
    await lab.pool.close()


async def test_a_killed_fork_server_takes_its_workers_along_and_is_replaced(marker: str) -> None:
    async with running_pool() as lab:
        worker = await lab.spawn()
        worker.tell(argv=["sh", "-c", "setsid sleep 600 & sleep 600"], env=environment(marker))
        await until_living(marker, 3)
        assert lab.pool._link is not None
        os.kill(lab.pool._link.pid, signal.SIGKILL)
        assert await lab.exit_of(worker.key) == ExitReason(signal=signal.SIGKILL)
        async with asyncio.timeout(5):
            while living(marker):  # noqa: ASYNC110 - the kernel sends no event for this
                await asyncio.sleep(0.01)
        again = await lab.spawn(SlotPlan(0), generation=2)
        assert (await again.run("true"))["status"] == 0


def descriptors_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def count_groups(lab: PoolLab) -> int:
    return sum(len(list(path.iterdir())) for path in lab.directories())
