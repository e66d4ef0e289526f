"""What a slot's cgroups enforce and prove, with real commands: memory, processes, cores, time."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from mitosis_protocol.enums import CpuStrategy
from mitosis_protocol.specs import CpuBinding, WorkerSchedule
from mitosis_protocol.suites import ResourceLimits
from nodeagent.errors import LimitsUnenforceable
from nodeagent.pool.host import find_hierarchies
from nodeagent.pool.launch import SlotPlan
from tests.fakes.pool_lab import PYTHON, LabWorker, PoolLab, running_pool

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.cgroup]

MB = 1_000_000
HOG = 'import sys; x = b"x" * int(sys.argv[1])'
# Prints its own cores and those of a grandchild, and what `nproc` makes of them.
CORES = (
    "import os, subprocess, sys\n"
    "print(sorted(os.sched_getaffinity(0)), flush=True)\n"
    "subprocess.run(['sh', '-c', 'nproc; exec ' + sys.executable + ' -c \"'\n"
    "    'import os; print(sorted(os.sched_getaffinity(0)))\"'], check=True)\n"
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def lab() -> AsyncIterator[PoolLab]:
    async with running_pool() as lab:
        reason = lab.lacks("memory", "pids", "cpu", "cpuset")
        if reason:
            pytest.skip(reason)
        yield lab
        assert lab.trouble == []


@pytest_asyncio.fixture(loop_scope="module")
async def worker(lab: PoolLab) -> LabWorker:
    return await lab.spawn()


async def hog(worker: LabWorker, size: int, **request: object) -> dict[str, object]:
    return await worker.run(PYTHON, "-S", "-c", HOG, str(size), **request)


async def test_a_command_beyond_its_memory_limit_is_killed_and_the_kernel_proves_it(
    worker: LabWorker,
) -> None:
    end = await hog(worker, 200 * MB, limits={"memory": 64 << 20})
    assert end["was_oom"]
    assert end["status"] == signal.SIGKILL
    assert 40 * MB < end["peak_memory_bytes"] <= 64 << 20


async def test_the_oom_of_one_task_hits_neither_its_neighbour_nor_its_successor(
    lab: PoolLab, worker: LabWorker
) -> None:
    neighbour = await lab.spawn()
    neighbour.tell(argv=["sleep", "1"], limits={"memory": 64 << 20})
    end = await hog(worker, 200 * MB, limits={"memory": 64 << 20})
    assert end["was_oom"]
    after = await hog(worker, 20 * MB, limits={"memory": 64 << 20})
    beside = await neighbour.hear()
    for each in (after, beside):
        assert (each["status"], each["was_oom"]) == (0, False)


async def test_a_child_killed_for_memory_is_proven_although_its_parent_ends_well(
    worker: LabWorker,
) -> None:
    script = f"{PYTHON} -S -c '{HOG}' 200000000; exit 0"
    end = await worker.shell(script, limits={"memory": 64 << 20})
    assert (end["status"], end["was_oom"]) == (0, True)


async def test_sigkill_from_somebody_else_is_no_proof_of_oom(worker: LabWorker) -> None:
    end = await worker.shell("kill -9 $$", limits={"memory": 64 << 20})
    assert (end["status"], end["was_oom"]) == (signal.SIGKILL, False)


async def test_a_limit_that_is_too_small_for_anything_ends_the_task_and_not_the_worker(
    worker: LabWorker,
) -> None:
    for _ in range(3):
        end = await hog(worker, 100 * MB, limits={"memory": 4 << 20})
        assert end["was_oom"]
    assert (await worker.run("true"))["status"] == 0


async def test_limits_of_one_task_do_not_bind_the_next(worker: LabWorker) -> None:
    limits = {"memory": 64 << 20, "pids": 4, "cpus": 0.5}
    assert (await worker.run("true", limits=limits))["status"] == 0
    end = await hog(worker, 200 * MB)
    assert (end["status"], end["was_oom"]) == (0, False)
    script = "for i in 1 2 3 4 5 6 7 8; do sleep 0.2 & done; wait"
    assert (await worker.shell(script))["status"] == 0


async def test_limits_of_the_suite_hold_for_tasks_without_their_own(lab: PoolLab) -> None:
    worker = await lab.spawn(limits=ResourceLimits(memory=64 << 20))
    assert (await hog(worker, 200 * MB))["was_oom"]
    assert not (await hog(worker, 200 * MB, limits={"memory": 400 << 20}))["was_oom"]


async def test_the_peak_is_the_tasks_own_and_right_within_a_few_megabytes(
    worker: LabWorker,
) -> None:
    for size in (100 * MB, 30 * MB, 60 * MB):
        end = await hog(worker, size)
        # The interpreter itself takes some 6 MB.
        assert size < end["peak_memory_bytes"] < size + 14 * MB


async def test_page_cache_of_one_task_does_not_show_in_the_peak_of_the_next(
    worker: LabWorker, tmp_path: Path
) -> None:
    file = make_writable_file(tmp_path / "big")
    end = await worker.shell(f"head -c 60000000 /dev/zero > {file}")
    assert end["status"] == 0
    assert end["peak_memory_bytes"] > 40 * MB
    after = await worker.run("true")
    assert after["peak_memory_bytes"] < 8 * MB


async def test_a_fork_bomb_stays_within_its_limit_and_is_gone_with_its_task(
    lab: PoolLab, worker: LabWorker
) -> None:
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n"
    end = await worker.run(PYTHON, "-S", "-c", bomb, limits={"pids": 30}, timeout_s=1, grace_s=0.2)
    assert end["cause"] == "timed_out"
    assert end["survivors"] == 0
    assert end["peak_pids"] == 30
    after = await worker.run("true")
    assert after["status"] == 0
    assert len(lab.members(worker)) == 1  # the launcher


async def test_a_bomb_that_kills_its_launcher_is_ended_all_the_same(
    lab: PoolLab, worker: LabWorker
) -> None:
    bomb = (
        "import os, signal\n"
        "os.kill(os.getppid(), signal.SIGKILL)\n"
        "while True:\n"
        "  try:\n"
        "    if os.fork() == 0: os.setsid()\n"
        "  except OSError: pass\n"
    )
    async with asyncio.timeout(30):  # without the cgroup it takes twice as long
        end = await worker.run(PYTHON, "-S", "-c", bomb, limits={"pids": 30})
    assert end["status"] == signal.SIGKILL
    assert (await worker.run("true"))["status"] == 0
    assert len(lab.members(worker)) == 1


async def test_a_cpu_limit_slows_a_busy_command_down(worker: LabWorker) -> None:
    busy = "import time; end = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
    end = await worker.run(PYTHON, "-S", "-c", busy, limits={"cpus": 0.2})
    assert end["cpu_s"] < 0.5


async def test_processor_time_counts_children_that_nobody_waited_for(worker: LabWorker) -> None:
    burn = "import time; e = time.process_time() + 0.3\nwhile time.process_time() < e: pass"
    script = f"{PYTHON} -S -c '{burn}' & disown; while kill -0 $! 2>&-; do sleep 0.05; done"
    end = await worker.run("bash", "-c", script)
    assert 0.3 < end["cpu_s"] < 3


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (CpuStrategy.ROUND_ROBIN, [[0], [1], [0]]),
        (CpuStrategy.EXCLUSIVE, [[0], [1]]),
        (CpuStrategy.SHARED, [[0, 1], [0, 1]]),
    ],
)
async def test_commands_and_their_children_see_the_cores_of_their_slot(
    lab: PoolLab, tmp_path: Path, strategy: CpuStrategy, expected: list[list[int]]
) -> None:
    if len(os.sched_getaffinity(0) & {0, 1}) < 2:
        pytest.skip("cores 0 and 1 are not both ours")
    schedule = WorkerSchedule(
        worker_count=len(expected), cpu_binding=CpuBinding(strategy=strategy, cores=[0, 1])
    )
    first = max((w.key.local_id for w in lab.workers), default=-1) + 1
    for plan, cores in zip(lab.pool.check(schedule, None), expected, strict=True):
        slot = SlotPlan(plan.local_id + first, plan.cores)
        worker = await lab.spawn(slot)
        await seen_cores(worker, tmp_path / f"{plan.local_id}.out", cores)


async def test_running_commands_move_when_the_cores_are_dealt_out_anew(
    lab: PoolLab, tmp_path: Path
) -> None:
    if len(os.sched_getaffinity(0) & {0, 1}) < 2:
        pytest.skip("cores 0 and 1 are not both ours")
    worker = await lab.spawn()
    slot = worker.key.local_id
    worker.tell(argv=["sleep", "600"])
    await until(lambda: len(lab.members(worker)) == 2)
    running = lab.members(worker)
    for cores in ((1,), (0,), (0, 1)):
        await lab.pool.rebind([SlotPlan(slot, cores)])
        assert [sorted(os.sched_getaffinity(pid)) for pid in running] == [list(cores)] * 2
    worker.tell(stop=True)
    assert (await worker.hear())["status"] == signal.SIGTERM
    await lab.pool.rebind([SlotPlan(slot, (1,))])
    await seen_cores(worker, tmp_path / "after.out", [1])


async def test_what_the_host_cannot_do_is_refused_before_anything_is_spawned(
    lab: PoolLab,
) -> None:
    too_many = CpuBinding(strategy=CpuStrategy.EXCLUSIVE, cores_per_worker=4000)
    absent = CpuBinding(cores=[4001])
    for binding in (too_many, absent):
        with pytest.raises(LimitsUnenforceable):
            lab.pool.check(WorkerSchedule(worker_count=2, cpu_binding=binding), None)


async def test_without_cgroups_limits_are_refused_and_cores_are_set_by_affinity(
    tmp_path: Path,
) -> None:
    async with running_pool(use_cgroups=False) as lab:
        for limits in (
            ResourceLimits(memory=1 << 30),
            ResourceLimits(pids=5),
            ResourceLimits(cpus=1),
        ):
            with pytest.raises(LimitsUnenforceable, match="cannot be enforced"):
                lab.pool.check(WorkerSchedule(worker_count=1), limits)
        core = min(os.sched_getaffinity(0))
        worker = await lab.spawn(SlotPlan(0, (core,)))
        await seen_cores(worker, tmp_path / "out", [core])
        refused = await worker.run("true", limits={"memory": 1 << 30})
        assert refused["error"] == "LimitsUnenforceable"
        worker.tell(argv=["sleep", "600"])
        await asyncio.sleep(0.2)
        await lab.pool.rebind([SlotPlan(0, None)])
        worker.tell(stop=True)
        await worker.hear()
        await seen_cores(worker, tmp_path / "all", sorted(os.sched_getaffinity(0)))


async def test_version_2_controllers_enforce_the_same(tmp_path: Path) -> None:
    hierarchies = find_hierarchies()
    found = next((each for each in hierarchies if each.version == 2), None)
    if found is None or not {"memory", "pids", "cpuset"} <= set(found.controllers):
        pytest.skip("no cgroup v2 controllers on this host")
    async with running_pool() as lab:
        reason = lab.lacks("memory", "pids", "cpuset")
        if reason:
            pytest.skip(reason)
        core = min(os.sched_getaffinity(0))
        worker = await lab.spawn(SlotPlan(0, (core,)))
        await seen_cores(worker, tmp_path / "out", [core])
        assert (await hog(worker, 200 * MB, limits={"memory": 64 << 20}))["was_oom"]
        end = await hog(worker, 50 * MB, limits={"memory": 128 << 20, "pids": 8})
        assert (end["status"], end["was_oom"]) == (0, False)


def make_writable_file(file: Path) -> Path:
    """One that the user of a slot can write, below directories that only root may see."""
    file.touch()
    file.chmod(0o666)
    for parent in file.parents:
        if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    return file


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines()


async def seen_cores(worker: LabWorker, output: Path, cores: list[int]) -> None:
    end = await worker.run(PYTHON, "-c", CORES, output=str(output))
    assert end["status"] == 0, lines_of(output)
    assert lines_of(output) == [str(cores), str(len(cores)), str(cores)]


async def until(condition, within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - the kernel sends no event for this
            await asyncio.sleep(0.01)
