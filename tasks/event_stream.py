"""Server-sent events: turns a source that is polled into a stream that ends well.

Used by the asynchronous views of tasks and suites. Between two looks at the source nothing is
held: no thread, no database connection. A hint shortens the wait; without one the pause grows.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import structlog
from django.http import StreamingHttpResponse

from core.errors import DomainError, Throttled

log = structlog.get_logger(__name__)

MIN_PAUSE_S: Final = 0.25
MAX_PAUSE_S: Final = 2.0  # what a lost hint costs a watcher
KEEP_ALIVE_S: Final = 15.0  # proxies close connections that stay silent for a minute
RECHECK_S: Final = 5.0  # how long a revoked reader may go on
MAX_LIFE_S: Final = 3600.0  # then the reader comes back by itself, with Last-Event-ID
MAX_STREAMS_PER_USER: Final = 64  # in one process
RETRY_MS: Final = 2000

_open: Final = Counter[int]()


@dataclass(frozen=True, slots=True)
class Frame:
    """One event; without an id it is news of the moment and not repeated after a reconnect."""

    event: str
    data: bytes
    id: str | None = None

    def encode(self) -> bytes:
        head = b"" if self.id is None else b"id: " + self.id.encode() + b"\n"
        # JSON has no line breaks outside of strings, and those are escaped.
        return head + b"event: " + self.event.encode() + b"\ndata: " + self.data + b"\n\n"


class Source(Protocol):
    """Where frames come from."""

    @property
    def is_over(self) -> bool:
        """Nothing will come any more."""

    async def poll(self) -> list[Frame]:
        """What is new; an empty list when nothing is."""

    async def permit(self) -> None:
        """Raises DomainError once the reader may no longer read."""

    async def wait(self, timeout_s: float) -> None:
        """Sleep so long, or less when there is a hint of news."""

    async def close(self) -> None:
        """Let go of whatever listens for hints."""


def stream_response(source: Source, *, user_id: int) -> StreamingHttpResponse:
    """The answer that sends what `source` gives. Raises Throttled for too many at a time."""
    if _open[user_id] >= MAX_STREAMS_PER_USER:
        raise Throttled(f"At most {MAX_STREAMS_PER_USER} event streams at a time", retry_after_s=5)
    response = StreamingHttpResponse(_bytes(source, user_id), content_type="text/event-stream")
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"  # nginx would hold small events back
    return response


async def _bytes(source: Source, user_id: int) -> AsyncIterator[bytes]:
    with _counted(user_id):
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            async for piece in _pieces(source):
                yield piece
        except DomainError as error:
            # The reader may not go on, or the database is away: it will come back and be told.
            log.info("stream.ended", code=str(error.code))
        finally:
            await source.close()


async def _pieces(source: Source) -> AsyncIterator[bytes]:
    started = spoken = checked = time.monotonic()
    pause_s = MIN_PAUSE_S
    while time.monotonic() - started < MAX_LIFE_S:
        frames = await source.poll()
        for frame in frames:
            yield frame.encode()
        if source.is_over:
            return
        now = time.monotonic()
        if frames:
            spoken, pause_s = now, MIN_PAUSE_S
        elif now - spoken >= KEEP_ALIVE_S:
            spoken = now
            yield b": still here\n\n"
        if now - checked >= RECHECK_S:
            checked = now
            await source.permit()
        await source.wait(pause_s)
        pause_s = min(MAX_PAUSE_S, pause_s * 2)


@contextmanager
def _counted(user_id: int) -> Iterator[None]:
    _open[user_id] += 1
    try:
        yield
    finally:
        _open[user_id] -= 1
        if not _open[user_id]:
            del _open[user_id]
