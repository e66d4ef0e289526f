"""From messages to frames on the wire: encoding, the bounded queue of one socket, error frames.

The only place where a DomainError becomes a frame. Owned by websocket.session.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from core.errors import DomainError
from core.faults import deliveries
from mitosis_protocol.codec import DecodeFailed
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.limits import MAX_SEND_QUEUE_BYTES
from mitosis_protocol.to_manager import TO_MANAGER, Error, ToManager
from websocket.auth import Send


class Outbound:
    """Frames that wait for a peer to read them. Beyond the limits the peer is cut off."""

    def __init__(
        self,
        send: Send,
        *,
        max_frames: int,
        on_overflow: Callable[[], None],
        on_sent: Callable[[int], None] = lambda _size: None,
    ) -> None:
        self._send = send
        self._on_sent = on_sent
        self._max_frames = max_frames
        self._on_overflow = on_overflow
        self._frames: deque[str] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def put(self, frame: str) -> None:
        """Queue an encoded frame; never waits."""
        if len(self._frames) >= self._max_frames or self._bytes >= MAX_SEND_QUEUE_BYTES:
            self._on_overflow()
            return
        for _ in range(deliveries("socket.send")):
            self._frames.append(frame)
            self._bytes += len(frame)
        self._filled.set()
        if self._is_half_full():
            self._has_room.clear()

    async def wait_for_room(self) -> None:
        """Until at most half of the queue is taken: whoever asks must also read."""
        await self._has_room.wait()

    async def drain(self) -> None:
        """Send until cancelled; the server lets us wait while the peer does not read."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            await self.flush()

    async def flush(self) -> None:
        """Send what is queued now."""
        while self._frames:
            frame = self._frames.popleft()
            self._bytes -= len(frame)
            await self._send({"type": "websocket.send", "text": frame})
            self._on_sent(len(frame))
            if not self._is_half_full():
                self._has_room.set()

    def _is_half_full(self) -> bool:
        return 2 * len(self._frames) > self._max_frames or 2 * self._bytes > MAX_SEND_QUEUE_BYTES


def encode(message: ToManager) -> str:
    """The frame of a message; one that does not fit becomes an error frame."""
    try:
        return TO_MANAGER.encode(message).decode()
    except ValueError:
        refusal = Error(
            code=ErrorCode.PROTOCOL_TOO_LARGE,
            message="the answer does not fit a frame",
            request_id=getattr(message, "request_id", None),
        )
        return TO_MANAGER.encode(refusal).decode()


def refusal_of(error: DomainError, request_id: int | None) -> Error:
    """One of our errors as a message."""
    return Error(
        code=error.code,
        message=error.message,
        request_id=request_id,
        is_retryable=error.retryable,
    )


def complaint_about(failure: DecodeFailed, request_id: int | None) -> Error:
    """Bytes that are no message."""
    return Error(code=failure.code, message=failure.message[:500], request_id=request_id)


def bug_in_handler(request_id: int | None) -> Error:
    """Our own fault; details are in the log."""
    return Error(
        code=ErrorCode.INTERNAL,
        message="The coordinator failed to handle this",
        request_id=request_id,
        is_retryable=True,
    )
