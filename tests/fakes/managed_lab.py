"""Managed workers under test: a real pool and a real IPC server; the test answers as the agent."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from mitosis_protocol.ipc import (
    Done,
    FromWorker,
    StartReply,
    StartTask,
    ToWorker,
    WorkerSettings,
    WorkItem,
)
from mitosis_protocol.specs import TaskSpec
from mitosis_protocol.to_manager import OfferedTask
from nodeagent.failures import ExitReason
from nodeagent.ipc.server import (
    IpcEvent,
    TransportName,
    WorkerAsked,
    WorkerKey,
    WorkerParked,
    WorkerReady,
)
from nodeagent.ipc.transport import make_server
from nodeagent.pool.launch import SlotPlan, WorkerLaunch
from nodeagent.pool.pool import PoolSettings, WorkerPool

M = TypeVar("M", bound=FromWorker)
WORKER = WorkerKey(0, 0)


class ManagedLab:
    """One worker, everything it said, and how it is answered."""

    def __init__(self, transport: TransportName) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="ml-"))
        self.home.chmod(0o711)
        self.server = make_server(transport, self.home / "ipc", uuid4())
        self.events: list[IpcEvent] = []
        self.exits: list[ExitReason] = []
        self.answers: dict[type[FromWorker], Callable[[FromWorker], ToWorker]] = {}
        self.pid = 0
        self._changed = asyncio.Event()
        self.pool = WorkerPool(
            PoolSettings(instance=f"ipc-{os.getpid()}-{uuid4().hex[:6]}"),
            lambda _key, reason: self._note(self.exits, reason),
            lambda trouble: self._note(self.troubles, trouble),
        )
        self.troubles: list[Exception] = []

    async def open(self, settings: WorkerSettings) -> None:
        loop = asyncio.get_running_loop()
        self.server.open(lambda event: loop.call_soon_threadsafe(self._on_event, event))
        await self.pool.open()
        self.pid = await self.pool.spawn(
            WorkerLaunch(
                key=WORKER,
                endpoint=self.server.attach(WORKER),
                slot=SlotPlan(0),
                suite_uuid=uuid4(),
                work_dir=str(self.home / "workers" / "0"),
                env={"PATH": os.defpath},
                settings=settings,
            )
        )
        await self.until(lambda: self.has(WorkerReady), "ready")

    @property
    def parked(self) -> int:
        """How often it has asked for work and found none."""
        return sum(isinstance(event, WorkerParked) for event in self.events)

    def put(
        self,
        attempt_id: int,
        script: str,
        *,
        timeout: str = "60s",
        terminal_output: bool = False,
        **item: object,
    ) -> None:
        """A shell script as the next task."""
        task = OfferedTask(
            task_id=attempt_id,
            task_uuid=uuid4(),
            spec=TaskSpec(args=["sh", "-c", script], terminal_output=terminal_output),
            priority=0,
            timeout=timeout,
        )
        self.server.put([WorkItem(task=task, **item)])  # type: ignore[arg-type]  # members by name

    async def word(self, kind: type[M], attempt_id: int) -> M:
        """What the worker says of this kind about the attempt."""

        def found() -> list[M]:
            said = [e.message for e in self.events if isinstance(e, WorkerAsked)]
            return [m for m in said if isinstance(m, kind) and m.attempt_id == attempt_id]

        await self.until(lambda: bool(found()), f"{kind.__name__} of {attempt_id}")
        return found()[0]

    def said(self, kind: type[M]) -> list[M]:
        said = [e.message for e in self.events if isinstance(e, WorkerAsked)]
        return [message for message in said if isinstance(message, kind)]

    def has(self, kind: type[IpcEvent]) -> bool:
        return any(isinstance(event, kind) for event in self.events)

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(60):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            news = [e for e in self.events if "Heartbeat" not in repr(e)][-10:]
            raise AssertionError(f"{what}: {news} {self.exits} {self.troubles}") from None

    async def close(self) -> None:
        if not self.exits:
            self.pool.kill(WORKER)
            await self.until(lambda: bool(self.exits), "its end")
        await self.pool.release_slots()
        await self.pool.close()
        self.server.detach(WORKER)
        self.server.close()
        shutil.rmtree(self.home)
        assert self.troubles == []

    def _on_event(self, event: IpcEvent) -> None:
        self._note(self.events, event)
        if isinstance(event, WorkerAsked):
            answer = self.answers.get(type(event.message), _default)(event.message)
            self.server.reply(event.token, answer)

    def _note(self, where: list, what: object) -> None:  # type: ignore[type-arg]  # three kinds
        where.append(what)
        self._changed.set()


def _default(message: FromWorker) -> ToWorker:
    if isinstance(message, StartTask):
        return StartReply(request_id=message.request_id, may_run=True)
    return Done(request_id=message.request_id)


@asynccontextmanager
async def managed_worker(
    transport: TransportName, settings: WorkerSettings | None = None
) -> AsyncIterator[ManagedLab]:
    lab = ManagedLab(transport)
    try:
        await lab.open(settings or WorkerSettings(log_bytes_per_s=0, heartbeat_interval_s=0.2))
        yield lab
    finally:
        await lab.close()
