"""What a task pays for its slot: `/bin/true` through launcher and cgroups, against a bare spawn."""

import asyncio
import os
import time
from uuid import uuid4

from benchmarks.measure import REPETITIONS, Figure, Row
from nodeagent.pool.host import find_hierarchies
from nodeagent.pool.launch import SlotSetup
from nodeagent.pool.sandbox import choose_sandbox
from nodeagent.pool.slots import SlotTree
from nodeagent.worker.control import TaskControl
from nodeagent.worker.executor import run_command
from nodeagent.worker.launcher import Command
from nodeagent.worker.launcher_process import StartedLauncher
from nodeagent.worker.slot import SlotRunner, prepare_launcher

COMMANDS = 500
TRUE = Command(argv=["/bin/true"], env={"PATH": os.defpath})


def run() -> list[Row]:
    instance = f"bench-{uuid4().hex[:8]}"
    tree = SlotTree(instance, find_hierarchies())
    tree.open()
    try:
        identity = choose_sandbox(instance, None).identity(0)
        uid, gid = (identity.uid, identity.gid) if identity else (None, None)
        setup = SlotSetup(tree.ensure(0, None), uid, gid)
        return asyncio.run(_measure(setup, prepare_launcher(setup)))
    finally:
        tree.empty(0)
        tree.remove(0)
        tree.close()


async def _measure(setup: SlotSetup, first: StartedLauncher) -> list[Row]:
    runner = SlotRunner(setup, first)
    await runner.open()
    bare: list[float] = []
    slot: list[float] = []
    parent: list[float] = []
    try:
        for _ in range(REPETITIONS):
            bare.append(_spawn_bare())
            wall, cpu = await _run_in_slot(runner)
            slot.append(wall)
            parent.append(cpu)
    finally:
        await runner.close()
    extra = tuple(ours - limit for ours, limit in zip(slot, bare, strict=True))
    return [
        Row("slot: run and wait", Figure(tuple(slot), "us"), limit=Figure(tuple(bare), "us")),
        Row("slot: more than a bare posix_spawn", Figure(extra, "us"), goal="under 160 us"),
        Row("slot: CPU of the worker for it", Figure(tuple(parent), "us")),
    ]


def _spawn_bare() -> float:
    began = time.perf_counter()
    for _ in range(COMMANDS):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], TRUE.env), 0)
    return (time.perf_counter() - began) / COMMANDS * 1e6


async def _run_in_slot(runner: SlotRunner) -> tuple[float, float]:
    began, used = time.perf_counter(), time.process_time()
    for _ in range(COMMANDS):
        await run_command(runner, TRUE, timeout_s=60, control=TaskControl(0))
    took = (time.perf_counter() - began) / COMMANDS * 1e6
    return took, (time.process_time() - used) / COMMANDS * 1e6
