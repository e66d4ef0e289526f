"""A scheduler on a real socket for one direct worker: what a test tells it to say, and no more.

Acks everything numbered in order, complains about gaps, remembers what it heard. `lose` cuts the
connection, `deaf` swallows what comes in, as a bad network would.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import UUID

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import (
    Ack,
    Dispatch,
    Error,
    Feedback,
    Handshake,
    Heartbeat,
    Payload,
    Register,
    Result,
    SessionTerms,
)
from mitosis_protocol.control_plane import Frame, Sender, Stamp, open_frame, seal
from mitosis_protocol.specs import TaskSpec
from mitosis_protocol.to_manager import Reconciliation

P = TypeVar("P", bound=Payload)


class FakeScheduler:
    """One worker at a time."""

    def __init__(self) -> None:
        self.heard: list[Frame] = []
        self.is_deaf = False
        self.answers: dict[type[Payload], Callable[[Frame], Payload | None]] = {}
        self._numbers = itertools.count(1)
        self._next: dict[int, int] = {}
        self._socket: ServerConnection | None = None
        self._server: Server | None = None
        self.sessions = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        port = next(iter(self._server.sockets)).getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def of(self, kind: type[P]) -> list[P]:
        return [frame.payload for frame in self.heard if isinstance(frame.payload, kind)]

    def result(self, attempt_id: int) -> Result | None:
        return next((one for one in self.of(Result) if one.task_id == attempt_id), None)

    async def until(self, condition: Callable[[], object], *, within_s: float = 20) -> None:
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110 - what it looks at has no event
                await asyncio.sleep(0.02)

    async def say(self, payload: Payload, *, id: str | None = None, corr: str | None = None) -> str:
        assert self._socket is not None
        name = id or f"s-{next(self._numbers)}"
        stamp = Stamp(name, "2026-01-01T00:00:00Z", "lab", Sender(role="scheduler", id="s"))
        await self._socket.send(seal(payload, stamp, corr=corr, wants_ack=True))
        return name

    async def dispatch(self, attempt_id: int, *args: str, **changes: Any) -> str:
        given: dict[str, Any] = {
            "task_uuid": UUID(int=attempt_id),
            "attempt": 1,
            "node_type": "command",
            "spec": TaskSpec(args=list(args)),
            "timeout": "1m",
            **changes,
        }
        return await self.say(Dispatch(task_id=attempt_id, **given), corr=str(attempt_id))

    async def lose(self) -> None:
        assert self._socket is not None
        await self._socket.close(1012)

    async def _serve(self, socket: ServerConnection) -> None:
        self._socket = socket
        self.sessions += 1
        try:
            async for data in socket:
                if not self.is_deaf:
                    await self._take(open_frame(data))
        except ConnectionClosed:
            return

    async def _take(self, frame: Frame) -> None:
        planned = self.answers.get(type(frame.payload))
        answer = planned(frame) if planned is not None else None
        answer = answer or self._answer(frame)
        if answer is not None:
            await self.say(answer)

    def _answer(self, frame: Frame) -> Payload | None:
        name = frame.envelope.id
        payload = frame.payload
        if isinstance(payload, Feedback | Result):
            return self._numbered(frame, payload.task_id)
        self.heard.append(frame)
        if isinstance(payload, Handshake):
            terms = SessionTerms(
                session_id=f"s{self.sessions}", tenant="lab", lease_s=60, heartbeat_interval_s=0.5
            )
            return Ack(for_id=name, session=terms)
        if isinstance(payload, Register | Heartbeat):
            return Ack(for_id=name, held=Reconciliation())
        return Ack(for_id=name) if frame.envelope.wants_ack else None

    def _numbered(self, frame: Frame, attempt_id: int) -> Payload:
        seq, expect = frame.envelope.seq, self._next.get(attempt_id, 1)
        assert seq is not None
        if seq > expect:
            return Error(
                code=ControlCode.RESULT_SEQ_GAP,
                for_id=frame.envelope.id,
                task_id=attempt_id,
                expect=expect,
            )
        if seq == expect:
            self.heard.append(frame)
            self._next[attempt_id] = seq + 1
        answer = "ok" if isinstance(frame.payload, Result) else None
        return Ack(for_id=frame.envelope.id, duplicate=seq < expect, answer=answer)


@asynccontextmanager
async def fake_scheduler() -> AsyncIterator[FakeScheduler]:
    fake = FakeScheduler()
    async with serve(fake._serve, "127.0.0.1", 0) as server:
        fake._server = server
        yield fake
