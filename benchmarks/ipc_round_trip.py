"""How long a worker waits for a task that lies on the agent's shelf, over both transports.

One worker alone, with pauses as between commands and without; 16 as often as two cores can run
commands for them, and as fast as they can; 8 while others come, leave and are killed. Workers are
forked by a process that has opened nothing, as the pool's are, and heard as the agent hears them:
on an event loop of its kind where the transport can be waited for, else on the transport's thread.
"""

import asyncio
import multiprocessing
import os
import signal
import statistics
import tempfile
import threading
import time
from array import array
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from benchmarks.measure import Figure, Row
from mitosis_protocol.ipc import FetchTask, Ready, WorkItem
from mitosis_protocol.specs import TaskSpec
from mitosis_protocol.to_manager import OfferedTask
from nodeagent.agent import new_event_loop
from nodeagent.ipc.server import (
    IpcEvent,
    IpcServer,
    OnLoop,
    TransportName,
    WorkerEndpoint,
    WorkerKey,
)
from nodeagent.ipc.transport import make_server, open_client

REPETITIONS = 3
FETCHES = 1500
SHORT_LIFE = 50
CHURN_S = 4.0
PAUSE_S = 0.001  # a worker does something between two fetches
# Two cores run some 1,500 commands a second, agent and all, so each of 16 workers fetches at most
# every ten milliseconds. With a pause of one the machine is nearly full, and the queue is measured.
PAUSE_OF_MANY_S = 0.010
GOALS = {50: "under 100 us, at most 2x", 95: "under 1 ms", 99: "under 10 ms"}
GOALS_OF_MANY = {**GOALS, 50: "under 300 us"}


def run() -> list[Row]:
    rows: list[Row] = []
    for name, measure, goals in (
        ("1 worker", lambda transport: _fetches(transport, 1, pause_s=0.0), GOALS),
        ("1 worker, 1 ms apart", lambda transport: _fetches(transport, 1), GOALS),
        (
            "16 workers, 10 ms apart",
            lambda transport: _fetches(transport, 16, pause_s=PAUSE_OF_MANY_S),
            GOALS_OF_MANY,
        ),
        ("16 workers, 1 ms apart", lambda transport: _fetches(transport, 16), GOALS_OF_MANY),
        ("8 workers, others come and go", _fetches_under_churn, GOALS),
    ):
        ours, twin = _repeat(measure, "iceoryx2"), _repeat(measure, "unix")
        rows += [
            Row(
                f"ipc: fetch p{share}, {name}",
                Figure(tuple(_percentile(times, share) for times in ours), "us"),
                peer=Figure(tuple(_percentile(times, share) for times in twin), "us"),
                peer_name="Unix socket",
                goal=goals[share],
            )
            for share in (50, 95, 99)
        ]
    return rows


def _repeat(measure: Any, transport: TransportName) -> list[list[float]]:
    return [measure(transport) for _ in range(REPETITIONS)]


class _Bench:
    """A server with a shelf that never ends, and its workers."""

    def __init__(self, transport: TransportName) -> None:
        self.home = tempfile.TemporaryDirectory(prefix="mb-")
        self.server: IpcServer = make_server(transport, Path(self.home.name) / "ipc", uuid4())
        self._loop = new_event_loop()
        self._hearing = threading.Thread(target=self._loop.run_forever, name="agent's loop")
        self._hearing.start()
        self.server.open(_forget, OnLoop(self._loop, _forget, lambda: None))
        self.server.put([_item(n) for n in range(100_000)])
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["benchmarks.ipc_round_trip"])
        self._generation = 0

    def start(self, local_id: int, fetches: int, gate: Any, pause_s: float = PAUSE_S) -> "_Worker":
        self._generation += 1
        key = WorkerKey(local_id, self._generation)
        endpoint = self.server.attach(key)
        fd = None if endpoint.fd is None else DupFd(endpoint.fd)
        times = Path(self.home.name) / f"times-{self._generation}"
        process = self._context.Process(
            target=_be_worker, args=(endpoint, fd, str(times), _Visit(fetches, pause_s), gate)
        )
        process.start()
        return _Worker(key, process, times)

    def end(self, worker: "_Worker") -> list[float]:
        worker.process.join()
        self.server.detach(worker.key)
        times = array("d")
        if worker.times.exists():
            times.frombytes(worker.times.read_bytes())
        return list(times)

    def gate(self) -> Any:
        return self._context.Event()

    def close(self) -> None:
        self.server.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._hearing.join()
        self._loop.close()
        self.home.cleanup()


class _Visit(msgspec.Struct, frozen=True):
    fetches: int
    pause_s: float


class _Worker(msgspec.Struct, frozen=True):
    key: WorkerKey
    process: Any
    times: Path


def _fetches(transport: TransportName, count: int, *, pause_s: float = PAUSE_S) -> list[float]:
    """Seconds of every fetch of so many workers at once."""
    bench = _Bench(transport)
    gate = bench.gate()
    workers = [bench.start(n, FETCHES // count, gate, pause_s) for n in range(count)]
    time.sleep(1.0)  # all of them are connected and wait at the gate
    gate.set()
    times = [seconds for worker in workers for seconds in bench.end(worker)]
    bench.close()
    return times


def _fetches_under_churn(transport: TransportName) -> list[float]:
    bench = _Bench(transport)
    gate = bench.gate()
    workers = [bench.start(n, FETCHES // 8, gate) for n in range(8)]
    is_over = threading.Event()
    churning = threading.Thread(target=_churn, args=(bench, gate, is_over))
    time.sleep(1.0)
    gate.set()
    churning.start()
    times = [seconds for worker in workers for seconds in bench.end(worker)]
    is_over.set()
    churning.join()
    bench.close()
    return times


def _churn(bench: _Bench, gate: Any, is_over: threading.Event) -> None:
    """Workers that fetch a little and leave, every other one by force."""
    deadline = time.monotonic() + CHURN_S
    while not is_over.is_set() and time.monotonic() < deadline:
        worker = bench.start(100, SHORT_LIFE, gate)
        if worker.key.generation % 2:
            time.sleep(0.05)
            os.kill(worker.process.pid, signal.SIGKILL)
        bench.end(worker)


def _be_worker(endpoint: WorkerEndpoint, fd: Any, times: str, visit: _Visit, gate: Any) -> None:
    if fd is not None:
        endpoint = msgspec.structs.replace(endpoint, fd=fd.detach())
    asyncio.run(_fetch_and_write(endpoint, times, visit, gate))


async def _fetch_and_write(endpoint: WorkerEndpoint, times: str, visit: _Visit, gate: Any) -> None:
    client = open_client(endpoint, lambda _message: None)
    await client.ask("heartbeat", Ready(request_id=client.next_id(), pid=os.getpid()))
    gate.wait()
    took = array("d")
    for _ in range(visit.fetches):
        began = time.perf_counter()
        await client.ask("fetch", FetchTask(request_id=client.next_id()))
        took.append(time.perf_counter() - began)
        if visit.pause_s:
            await asyncio.sleep(visit.pause_s)
    client.close()
    Path(times).write_bytes(took.tobytes())  # noqa: ASYNC240 - nothing else runs on this loop


def _forget(_event: IpcEvent) -> None:
    """Nothing but fetches is measured here."""


def _item(attempt_id: int) -> WorkItem:
    return WorkItem(
        task=OfferedTask(
            task_id=attempt_id, task_uuid=uuid4(), spec=TaskSpec(args=["true"]), priority=0
        )
    )


def _percentile(times: list[float], share: int) -> float:
    return round(statistics.quantiles(times, n=100)[share - 1] * 1e6, 1)
