"""One live socket, whoever is at its end: what it may send, how much at a time, and how it ends.

Base of websocket.session (managers) and websocket.worker_session (direct workers), which say what
a frame means. Frames are taken in order and never waited for; answers leave through one bounded
queue. Made and closed from outside by websocket.presence.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

import structlog

from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.limits import MAX_FRAME_BYTES
from websocket.auth import Message, Receive, Send
from websocket.close_codes import CloseCode
from websocket.outbound import Outbound
from websocket.rate import Bucket
from websocket.takeovers import Takeover

log = structlog.get_logger(__name__)

STALL_S: Final = 5.0  # a peer that reads nothing for so long, with its queue half full, is gone
CLOSE_TIMEOUT_S: Final = 2.0  # a peer that does not read does not get a goodbye either


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one socket; the numbers of the installation's policy."""

    in_flight: int
    send_queue: int
    answer_s: float


class RunnerPeer(Protocol):
    """Who is at the other end, as far as every socket has to know it."""

    @property
    def runner_id(self) -> int: ...
    @property
    def runner_uuid(self) -> UUID: ...
    @property
    def session_epoch(self) -> int: ...
    @property
    def ip(self) -> str | None: ...

    process_id: UUID | None  # of the runner, once it has said so
    takeover: Takeover | None  # if this session took the place of a living one


class Connection(ABC):
    """The life of one connection after its accept."""

    def __init__(self, peer: RunnerPeer, send: Send, *, limits: Limits, bucket: Bucket) -> None:
        self._who = peer
        self._send = send
        self._limits = limits
        self._bucket = bucket
        self._outbound = Outbound(
            send, max_frames=limits.send_queue, on_overflow=self._cut_off, on_sent=self.sent
        )
        self._ended: asyncio.Future[tuple[CloseCode, str] | None] = (
            asyncio.get_running_loop().create_future()
        )

    @property
    def who(self) -> RunnerPeer:
        return self._who

    @abstractmethod
    def take(self, data: str | bytes) -> None:
        """One frame within the limits: decode and hand over. Never waits."""

    @abstractmethod
    def hear(self, hint: str) -> None:
        """What another process pushed to this socket."""

    @abstractmethod
    def explain(self, error: ErrorCode, reason: str) -> None:
        """Say as a frame why the socket is about to end."""

    @abstractmethod
    def under_way(self) -> Iterable[asyncio.Task[None]]:
        """Handlers that are running; they end with the socket."""

    def sent(self, size: int) -> None:
        """A frame went out; for those who count."""
        return

    def companions(self) -> Iterable[Coroutine[Any, Any, None]]:
        """What runs as long as the socket, beside reading and writing."""
        return ()

    async def run(self, receive: Receive) -> None:
        """Serve until the peer leaves or somebody calls `close`."""
        work = (self._read(receive), self._outbound.drain(), *self.companions())
        tasks = {asyncio.create_task(self._watched(one)) for one in work}
        try:
            verdict = await self._ended
        finally:
            # Durable work goes on in its batch; an answer nobody waits for is dropped.
            doomed = tasks | set(self.under_way())
            for task in doomed:
                task.cancel()
            await asyncio.gather(*doomed, return_exceptions=True)
        if verdict is not None:
            await self._say_goodbye(*verdict)

    def close(self, code: CloseCode, reason: str, *, error: ErrorCode | None = None) -> None:
        """End the session from our side; the first reason counts.

        `error` goes out as a frame before: not every server passes the reason on.
        """
        if not self._ended.done():
            if error is not None:
                self.explain(error, reason)
            log.info("socket.closing", runner=str(self._who.runner_uuid), code=int(code),
                     reason=reason, epoch=self._who.session_epoch)  # fmt: skip
            self._ended.set_result((code, reason))

    @property
    def is_ending(self) -> bool:
        return self._ended.done()

    async def _watched(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except OSError:
            pass  # the server's way to say that the peer is gone
        except Exception:  # a shell edge: a bug here ends one socket, with a trace
            log.exception("socket.crashed", runner=str(self._who.runner_uuid))
            self.close(CloseCode.INTERNAL, "internal error")
        if not self._ended.done():
            self._ended.set_result(None)

    async def _read(self, receive: Receive) -> None:
        while not self._ended.done():
            event = await receive()
            if event["type"] == "websocket.disconnect":
                return
            self._admit(event)
            await self._let_answers_out()

    async def _let_answers_out(self) -> None:
        """Read no further while the answers so far wait to be read; not for ever, though.

        A server that has many frames at hand gives them without a pause, so this is also what
        lets the writer run between them.
        """
        try:
            async with asyncio.timeout(STALL_S):
                await self._outbound.wait_for_room()
        except TimeoutError:
            self._cut_off()

    def _admit(self, event: Message) -> None:
        data: str | bytes = event.get("text") or event.get("bytes") or b""
        if len(data) > MAX_FRAME_BYTES:
            self.close(CloseCode.TOO_LARGE, "frame too large")
        elif not self._bucket.take():
            self.close(CloseCode.OVERLOAD, "too many frames")
        else:
            self.take(data)

    def _cut_off(self) -> None:
        self.close(CloseCode.OVERLOAD, "answers are not read")

    async def _say_goodbye(self, code: CloseCode, reason: str) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                # What was answered before the end still goes out: it may say why.
                await self._outbound.flush()
                await self._send(
                    {"type": "websocket.close", "code": int(code), "reason": reason[:120]}
                )
        except (OSError, TimeoutError):
            log.info("socket.goodbye_lost", code=int(code))
