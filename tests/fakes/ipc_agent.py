"""An agent of an IPC test: a real server, the events it heard, and forked workers."""

import asyncio
import gc
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

from mitosis_protocol.ipc import Done, Heartbeat, WorkItem
from mitosis_protocol.specs import TaskSpec
from mitosis_protocol.to_manager import OfferedTask
from nodeagent.ipc.names import prefix_of
from nodeagent.ipc.server import (
    IpcEvent,
    IpcServer,
    OfferTaken,
    OnLoop,
    TransportName,
    WorkerAsked,
    WorkerEndpoint,
    WorkerKey,
    WorkerParked,
)
from nodeagent.ipc.transport import make_server
from tests.fakes.ipc_workers import IpcWorkers, Worker

PATIENCE_S = 30.0
SHM = Path("/dev/shm")  # where POSIX shared memory is


def make_item(attempt_id: int, *args: str) -> WorkItem:
    return WorkItem(
        task=OfferedTask(
            task_id=attempt_id,
            task_uuid=uuid4(),
            spec=TaskSpec(args=list(args) or ["/bin/true"]),
            priority=0,
            timeout="60s",
        )
    )


class LoopThread:
    """An event loop beside the test, for a server that hears its workers on one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="ipc")
        self._thread.start()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class IpcAgent:
    """A server that answers every report with Done unless told otherwise."""

    def __init__(
        self, transport: TransportName, workers: IpcWorkers, *, is_on_loop: bool = False
    ) -> None:
        # Short on purpose: a Unix socket's path has 107 bytes.
        self.home = Path(tempfile.mkdtemp(prefix="mi-"))
        self.manager_uuid = uuid4()
        self.transport = transport
        self.events: list[IpcEvent] = []
        self.answer: Callable[[WorkerAsked], object] = self._done
        self._changed = threading.Condition()
        self.server: IpcServer = make_server(transport, self.home / "ipc", self.manager_uuid)
        self._workers = workers
        self._started: list[Worker] = []
        self._loop_thread = LoopThread() if is_on_loop else None
        self.rounds: list[int] = []  # how many events had been noted at the end of each
        if self._loop_thread is None:
            self.server.open(self._on_event)
        else:
            on_loop = OnLoop(self._loop_thread.loop, self._on_event, self._end_round)
            self.server.open(self._unheard, on_loop)

    def start(self, local_id: int, script: str, number: int = 0, generation: int = 0) -> Worker:
        endpoint = self.attach(local_id, generation)
        diary = self.home / f"diary-{len(self._started)}"
        worker = self._workers.start(diary, endpoint, script, number)
        self._started.append(worker)
        return worker

    def attach(self, local_id: int, generation: int = 0) -> WorkerEndpoint:
        return self.server.attach(WorkerKey(local_id, generation))

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        with self._changed:
            while not is_so():
                assert time.monotonic() < deadline, f"{what}; heard: {self.events}"
                self._changed.wait(0.05)

    def taken(self) -> list[tuple[int, int]]:
        """Worker and attempt of every item handed out, in order."""
        return [
            (event.worker.local_id, event.attempt_id)
            for event in list(self.events)
            if isinstance(event, OfferTaken)
        ]

    def parked(self) -> list[int]:
        return [e.worker.local_id for e in list(self.events) if isinstance(e, WorkerParked)]

    def asked(self) -> list[WorkerAsked]:
        return [
            event
            for event in list(self.events)
            if isinstance(event, WorkerAsked) and not isinstance(event.message, Heartbeat)
        ]

    def close(self) -> None:
        for worker in self._started:
            worker.kill()
        self.server.close()
        if self._loop_thread is not None:
            self._loop_thread.close()

    def left_behind(self) -> list[str]:
        """Files and segments of this agent that exist now, but for the root's own lock."""
        return left_behind(self.home / "ipc", self.manager_uuid)

    def remove(self) -> None:
        shutil.rmtree(self.home)

    def _end_round(self) -> None:
        self.rounds.append(len(self.events))

    def _unheard(self, event: IpcEvent) -> None:
        raise AssertionError(f"not on the loop: {event}")

    def _on_event(self, event: IpcEvent) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()
        if isinstance(event, WorkerAsked):
            self.answer(event)

    def _done(self, event: WorkerAsked) -> None:
        self.server.reply(event.token, Done(request_id=event.token.request_id))


def left_behind(root: Path, manager_uuid: UUID) -> list[str]:
    files = [str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir()]
    ours = list(SHM.glob(f"{prefix_of(manager_uuid)}*"))
    below = [p for place in ours for p in place.rglob("*") if not p.is_dir()]
    segments = [str(p.relative_to(SHM)) for p in (*ours, *below)]
    return sorted(set(files) - {"agent.lock"}) + sorted(segments)


def count_descriptors() -> int:
    """Without those that nobody holds any more; earlier tests in this process leave some."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))
