"""The worker's numbers for whoever scrapes them: `GET /metrics` on an address of its own.

Off unless `metrics_listen` is set. Plain HTTP without a login: for loopback, or a network that may
see it. One short answer per connection; nothing is read but the request's head.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

import structlog

from nodeagent.errors import ConfigInvalid

log = structlog.stdlib.get_logger(__name__)

TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HEAD_BYTES: Final = 8192
_PATIENCE_S: Final = 5.0


@contextlib.asynccontextmanager
async def serve(address: tuple[str, int] | None, page: Callable[[], str]) -> AsyncIterator[None]:
    """While the block runs. Raises ConfigInvalid for an address that cannot be had."""
    if address is None:
        yield
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Whoever hangs up, dawdles or sends too much gets nothing; the worker does not care.
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError,
                                 asyncio.LimitOverrunError):  # fmt: skip
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer_to(head, page))
                await writer.drain()
        writer.close()

    host, port = address
    try:
        server = await asyncio.start_server(answer, host, port, limit=_HEAD_BYTES)
    except OSError as error:
        raise ConfigInvalid(f"metrics_listen: {error.strerror} ({host}:{port})") from error
    log.info("metrics.listening", host=host, port=port)
    async with server:
        yield


def _answer_to(head: bytes, page: Callable[[], str]) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if path != b"/metrics":
        return _response("404 Not Found", "")
    if method not in (b"GET", b"HEAD"):
        return _response("405 Method Not Allowed", "")
    return _response("200 OK", page() if method == b"GET" else "")


def _response(status: str, body: str) -> bytes:
    data = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {TYPE}\r\nContent-Length: {len(data)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + data
