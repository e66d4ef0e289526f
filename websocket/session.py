"""The socket of one manager: its messages, answered in any order.

Frames are decoded and handed to websocket.inbound in tasks of their own, so a slow statement never
stands before a heartbeat. What every socket does is websocket.connection; made by
websocket.presence.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import structlog
from typing_extensions import override

from core.errors import (
    AuthenticationFailed,
    DependencyUnavailable,
    DomainError,
    LimitExceeded,
    Superseded,
)
from managers.services.session_duty import read_standings
from mitosis_protocol.codec import DecodeFailed
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.from_manager import FROM_MANAGER, FromManager, Heartbeat
from mitosis_protocol.to_manager import Error, ToManager
from websocket.auth import Receive, Send
from websocket.close_codes import LEASE_LOST, SUPERSEDED, CloseCode
from websocket.connection import Connection, Limits
from websocket.counts import FRAME_BYTES, REQUEST_SECONDS, SOCKETS
from websocket.inbound import HANDLERS, ProtocolBroken
from websocket.outbound import bug_in_handler, complaint_about, encode, refusal_of
from websocket.peer import Peer
from websocket.rate import Bucket

log = structlog.get_logger(__name__)

MAX_BEATS: Final = 4  # heartbeats of one socket under way; more are a client gone wrong


class _Asked(msgspec.Struct):
    """All we want to know of a frame that is no message."""

    request_id: int | None = None


_ASKED: Final = msgspec.json.Decoder(_Asked)


class Session(Connection):
    """A manager's connection after its accept."""

    def __init__(self, peer: Peer, send: Send, *, limits: Limits, bucket: Bucket) -> None:
        super().__init__(peer, send, limits=limits, bucket=bucket)
        self.peer = peer
        self._requests: set[asyncio.Task[None]] = set()
        self._beats: set[asyncio.Task[None]] = set()

    @override
    def hear(self, hint: str) -> None:
        """Pushes to managers are frames that somebody else encoded."""
        self._outbound.put(hint)

    @override
    def explain(self, error: ErrorCode, reason: str) -> None:
        self._reply(Error(code=error, message=reason))

    @override
    def under_way(self) -> Iterable[asyncio.Task[None]]:
        return self._requests | self._beats

    @override
    async def run(self, receive: Receive) -> None:
        SOCKETS.of().inc()
        try:
            await super().run(receive)
        finally:
            SOCKETS.of().dec()

    @override
    def sent(self, size: int) -> None:
        FRAME_BYTES.of("out").inc(size)

    @override
    def take(self, data: str | bytes) -> None:
        FRAME_BYTES.of("in").inc(len(data))
        try:
            message = FROM_MANAGER.decode(data)
        except DecodeFailed as failure:
            if failure.code is ErrorCode.PROTOCOL_TOO_LARGE:
                self.close(CloseCode.TOO_LARGE, "frame too large")
                return
            self._reply(complaint_about(failure, _request_id_in(data)))
            return
        self._dispatch(message)

    def _dispatch(self, message: FromManager) -> None:
        is_beat = isinstance(message, Heartbeat)
        group = self._beats if is_beat else self._requests
        if len(group) >= (MAX_BEATS if is_beat else self._limits.in_flight):
            crowd = Crowded(
                "too many requests under way", code=ErrorCode.SESSION_TOO_MANY_IN_FLIGHT
            )
            self._reply(refusal_of(crowd, message.request_id))
            return
        task = asyncio.create_task(self._handle(message))
        group.add(task)
        task.add_done_callback(group.discard)

    async def _handle(self, message: FromManager) -> None:
        started = time.monotonic()
        try:
            # What was sent to the database goes on and may succeed: a repeat finds that out.
            async with asyncio.timeout(self._limits.answer_s):
                answers = await self._answers(message)
            for answer in answers:
                self._reply(answer)
        except DomainError as error:
            self._reply(refusal_of(error, message.request_id))
            self._end_for(error)
        except TimeoutError:
            log.warning("socket.request_too_slow", kind=type(message).__name__)
            self._reply(refusal_of(TookTooLong("not answered in time"), message.request_id))
        except Exception:  # a shell edge: one request fails, the socket lives
            log.exception("socket.handler_crashed", kind=type(message).__name__)
            self._reply(bug_in_handler(message.request_id))
        finally:
            REQUEST_SECONDS.of(type(message).__name__).observe(time.monotonic() - started)

    async def _answers(self, message: FromManager) -> Sequence[ToManager]:
        try:
            return await HANDLERS[type(message)](self.peer, message)
        except Superseded as error:
            raise await self._why_over() or error from error

    async def _why_over(self) -> DomainError | None:
        """What a fenced statement cannot know: was a newer session opened, or did nobody hear us?

        A process that stood still for longer than a lease meets its own past here before the watch
        does; an agent that is told of a newer session takes that for a clone and leaves for good.
        """
        manager_id = self.peer.manager_id
        standing = (await read_standings([manager_id])).get(manager_id)
        if standing is None or standing.is_revoked:
            return AuthenticationFailed("Wrong credentials", code=ErrorCode.AUTH_REVOKED_TOKEN)
        if standing.is_lost:
            return Superseded("the lease ended", code=ErrorCode.SESSION_LEASE_LOST)
        return None

    def _end_for(self, error: DomainError) -> None:
        if isinstance(error, Superseded):
            is_lost = error.code is ErrorCode.SESSION_LEASE_LOST
            self.close(CloseCode.SUPERSEDED, LEASE_LOST if is_lost else SUPERSEDED)
        elif isinstance(error, AuthenticationFailed):
            self.close(CloseCode.AUTH, "token no longer valid")
        elif isinstance(error, ProtocolBroken):
            self.close(CloseCode.PROTOCOL, error.message)

    def _reply(self, message: ToManager) -> None:
        self._outbound.put(encode(message))


class TookTooLong(DependencyUnavailable):
    """The outcome is not known; asking again with the same ids is safe."""

    code = ErrorCode.REQUEST_TIMEOUT


class Crowded(LimitExceeded):
    """More requests under way than one socket may have."""

    retryable = True


def _request_id_in(data: str | bytes) -> int | None:
    try:
        return _ASKED.decode(data).request_id
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
