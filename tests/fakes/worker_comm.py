"""A WorkerComm, a command and a store that tests program: no network, no processes."""

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from uuid import UUID, uuid4

from mitosis_protocol.enums import TaskExecState, TaskState
from mitosis_protocol.specs import RemoteResource
from nodeagent.worker.comm import (
    HeartbeatReply,
    LogChunk,
    RemoteLocation,
    Report,
    TaskOffer,
    TaskRef,
    TaskSnapshot,
    Upload,
)
from nodeagent.worker.launcher import Command, CommandExit

FOREVER_S = 3600.0


class FakeComm:
    """Remembers reports; `troubles` are raised, in order, by the calls they are filed under."""

    takes_crashes = False

    def __init__(self) -> None:
        self.offers: list[TaskOffer | Exception] = []
        self.reports: list[Report] = []
        self.states: list[TaskExecState] = []
        self.troubles: dict[str, list[Exception]] = {}
        self.heartbeats: list[tuple[int, ...]] = []
        self.reply = HeartbeatReply()
        self.watched = TaskSnapshot(
            TaskState.READY, None, is_committed=False, downstream_task_uuid=None
        )
        self.is_hanging: set[str] = set()
        self.chunks: list[LogChunk] = []

    async def fetch(self) -> TaskOffer | None:
        await self._trip("fetch")
        if not self.offers:
            return None
        offer = self.offers.pop(0)
        if isinstance(offer, Exception):
            raise offer
        return offer

    async def report(self, task: TaskRef, report: Report) -> str | None:
        await self._trip(type(report).__name__)
        self.reports.append(report)
        return "http://store/x" if isinstance(report, Upload) else None

    async def permit(self, task: TaskRef) -> None:
        await self._trip("permit")

    def note_state(self, task: TaskRef, state: TaskExecState) -> None:
        self.states.append(state)

    async def heartbeat(self, held: Collection[int]) -> HeartbeatReply:
        self.heartbeats.append(tuple(held))
        await self._trip("heartbeat")
        return self.reply

    async def resolve_resource(self, task: TaskRef, file: RemoteResource) -> RemoteLocation:
        await self._trip("resolve")
        return RemoteLocation("http://store/y", 1)

    async def read_task(self, uuid: UUID) -> TaskSnapshot:
        await self._trip("read")
        return self.watched

    async def log_chunk(self, task: TaskRef, chunk: LogChunk) -> None:
        await self._trip("log")
        self.chunks.append(chunk)

    async def unregister(self) -> None:
        await self._trip("unregister")

    async def close(self) -> None:
        """Nothing to close."""

    async def _trip(self, call: str) -> None:
        await asyncio.sleep(0)
        if call in self.is_hanging:
            await asyncio.sleep(FOREVER_S)
        waiting = self.troubles.get(call)
        if waiting:
            raise waiting.pop(0)


class FakeTransfers:
    """A store that takes and gives anything, or hangs."""

    def __init__(self) -> None:
        self.is_hanging = False

    async def download(self, source: RemoteLocation, write: Callable[[bytes], None]) -> None:
        write(b"x" * source.size)

    async def upload(self, url: str, file: Path, size: int) -> None:
        if self.is_hanging:
            await asyncio.sleep(FOREVER_S)

    async def close(self) -> None:
        """Nothing to close."""


class FakeCommand:
    """A command that ends when told to, or on the signals it obeys."""

    def __init__(self, *, obeys: frozenset[str] = frozenset({"terminate", "kill"})) -> None:
        self.calls: list[str] = []
        self.commands: list[Command] = []
        self.refusal: Exception | None = None
        self._obeys = obeys
        self._end: asyncio.Future[CommandExit] = asyncio.get_running_loop().create_future()

    def exit(self, status: int = 0) -> None:
        if not self._end.done():
            self._end.set_result(CommandExit(status))

    async def start(self, command: Command) -> None:
        self.calls.append("start")
        self.commands.append(command)
        if self.refusal is not None:
            raise self.refusal

    async def wait(self) -> CommandExit:
        return await self._end

    async def terminate(self) -> None:
        self._signal("terminate", 15)

    async def kill(self) -> None:
        self._signal("kill", 9)

    async def wait_killed(self, waiting: "asyncio.Future[CommandExit]") -> CommandExit:
        return await waiting

    def _signal(self, name: str, status: int) -> None:
        self.calls.append(name)
        if name in self._obeys:
            self.exit(status)


def make_offer(spec: object, *, attempt_id: int = 1, timeout_s: float = 60.0) -> TaskOffer:
    """An offer with a fresh uuid."""
    return TaskOffer(attempt_id=attempt_id, uuid=uuid4(), timeout_s=timeout_s, spec=spec)  # type: ignore[arg-type]
