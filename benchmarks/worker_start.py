"""How long workers take to start, and how much memory each has for itself, launcher included.

Two kinds: `slots` end where the pool's work ends (forked, launcher confined in its cgroups),
`managed` are the real workers and count as ready when the agent heard them say so over the IPC,
on its kind of event loop; their heartbeats are answered as the agent would. "limit" is as many bare
interpreters that say so over a pipe, all started at once.
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import structlog

from benchmarks.measure import REPETITIONS, Figure, Row, repeat
from mitosis_protocol.ipc import Done
from nodeagent.agent import new_event_loop
from nodeagent.ipc.server import (
    IpcEvent,
    OnLoop,
    WorkerAsked,
    WorkerEndpoint,
    WorkerKey,
    WorkerReady,
)
from nodeagent.ipc.transport import make_server
from nodeagent.pool.launch import SlotPlan, WorkerLaunch, decode_start
from nodeagent.pool.pool import PoolSettings, WorkerPool
from nodeagent.worker.slot import SlotRunner, prepare_launcher

COUNTS = (1, 16, 256)
GOALS = {1: "under 0.3 s", 256: "under 15 s"}
READY_S = 120.0
IDLE_WORKER = "benchmarks.worker_start:idle_worker"


def run() -> list[Row]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    rows: list[Row] = []
    limits = {count: repeat(partial(_start_bare, count), "s") for count in COUNTS}
    for kind, start in (("slots", _start_slots), ("managed", _start_managed)):
        memory: list[float] = []
        for count in COUNTS:
            measured = [_run(start(count)) for _ in range(REPETITIONS)]
            seconds = Figure(tuple(took for took, _ in measured), "s")
            goal = GOALS.get(count, "")
            rows.append(Row(f"{kind}: {count} ready", seconds, limit=limits[count], goal=goal))
            memory = [own for _, own in measured]
        name = f"{kind}: unshared memory of each of {COUNTS[-1]}"
        rows.append(Row(name, Figure(tuple(memory), "MB"), goal="under 20 MB"))
    return rows


def _run(start: Coroutine[Any, Any, tuple[float, float]]) -> tuple[float, float]:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(start)


def _start_bare(count: int) -> float:
    argv = [sys.executable, "-I", "-S", "-c", "print(flush=True); input()"]
    with ExitStack() as stack:
        began = time.perf_counter()
        processes = [
            stack.enter_context(
                subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for _ in range(count)
        ]
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        took = time.perf_counter() - began
        for process in processes:
            process.communicate(b"\n")
        return took


def idle_worker(data: bytes, descriptors: list[int]) -> int:
    """A worker that has its slot, says so, and does nothing."""
    start = decode_start(data, descriptors)
    first = prepare_launcher(start.setup)

    async def live() -> None:
        await SlotRunner(start.setup, first).open()
        os.write(descriptors[0], b".")
        await asyncio.Event().wait()

    asyncio.run(live())
    return 0


async def _start_slots(count: int) -> tuple[float, float]:
    """Seconds until all are ready, and the unshared megabytes of each."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs, tempfile.TemporaryDirectory() as directory:
        async with _open_pool(IDLE_WORKER) as pool:
            began = time.perf_counter()
            endpoints = [
                WorkerEndpoint(
                    transport="unix",
                    worker=WorkerKey(number, 1),
                    root=directory,
                    directory=directory,
                    fd=theirs.fileno(),
                )
                for number in range(count)
            ]
            await asyncio.gather(*(_spawn(pool, each, directory) for each in endpoints))
            heard = 0
            async with asyncio.timeout(READY_S):
                while heard < count:
                    heard += len(await asyncio.get_running_loop().sock_recv(ours, count))
            return time.perf_counter() - began, _unshared_mb(pool)


async def _start_managed(count: int) -> tuple[float, float]:
    ready: set[WorkerKey] = set()
    complete = asyncio.Event()
    attaching = asyncio.Lock()  # as the agent does

    def hear(event: IpcEvent) -> None:
        if isinstance(event, WorkerReady):
            ready.add(event.worker)
            if len(ready) == count:
                complete.set()
        elif isinstance(event, WorkerAsked):
            server.reply(event.token, Done(request_id=event.token.request_id))

    async def attach_and_spawn(number: int) -> None:
        async with attaching:
            endpoint = await asyncio.to_thread(server.attach, WorkerKey(number, 1))
        await _spawn(pool, endpoint, directory)

    # A short path: iceoryx2's sockets have little room for it.
    with tempfile.TemporaryDirectory(prefix="mw-") as directory:
        server = make_server("auto", Path(directory) / "ipc", uuid4())
        hearing = OnLoop(asyncio.get_running_loop(), hear, lambda: None)
        await asyncio.to_thread(server.open, hear, hearing)
        try:
            async with _open_pool(PoolSettings().target) as pool:
                began = time.perf_counter()
                await asyncio.gather(*map(attach_and_spawn, range(count)))
                async with asyncio.timeout(READY_S):
                    await complete.wait()
                return time.perf_counter() - began, _unshared_mb(pool)
        finally:
            await asyncio.to_thread(server.close)


@asynccontextmanager
async def _open_pool(target: str) -> AsyncIterator[WorkerPool]:
    settings = PoolSettings(instance=f"bench-{uuid4().hex[:8]}", target=target)
    pool = WorkerPool(settings, lambda key, reason: None, lambda trouble: None)
    await pool.open()
    try:
        yield pool
    finally:
        await pool.close()


async def _spawn(pool: WorkerPool, endpoint: WorkerEndpoint, directory: str) -> None:
    await pool.spawn(
        WorkerLaunch(
            key=endpoint.worker,
            endpoint=endpoint,
            slot=SlotPlan(endpoint.worker.local_id),
            suite_uuid=uuid4(),
            work_dir=f"{directory}/workers/{endpoint.worker.local_id}",
            log_level="warning",
        )
    )


def _unshared_mb(pool: WorkerPool) -> float:
    """Of an average worker and its launcher together, while they hold still."""
    workers = [psutil.Process(pid) for pid in pool.running.values()]
    for worker in workers:
        worker.send_signal(signal.SIGSTOP)
    pids = [process.pid for worker in workers for process in (worker, *worker.children())]
    return sum(map(_unshared_bytes, pids)) / len(workers) / 1e6


def _unshared_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = (line.split() for line in lines if line.startswith("Private_"))
    return sum(int(fields[1]) << 10 for fields in sizes)
