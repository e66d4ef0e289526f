"""PUT of small bodies to stores without TLS: one connection after the other, kept open.

Used by transfers for archives in memory. The general client spends four times the CPU on such a
request, which is most of what a worker does for a short task; what needs TLS or a proxy goes there.
"""

import asyncio
import urllib.request
from typing import Final
from urllib.parse import SplitResult, urlsplit

import h11
import msgspec

from nodeagent.errors import CoordinatorUnavailable

CONNECT_TIMEOUT_S: Final = 10.0
_READ_BYTES: Final = 64 * 1024
_HEADERS: Final = (("User-Agent", "mitosis-worker"), ("Accept-Encoding", "identity"))


class PutAnswer(msgspec.Struct, frozen=True):
    status: int
    retry_after: str | None = None


class PlainPuts:
    """Idle connections by address. One per worker; closed by whoever made it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._idle: dict[str, list[_Wire]] = {}
        self._has_proxy = bool(urllib.request.getproxies())

    def takes(self, url: str) -> bool:
        return url.startswith("http://") and not self._has_proxy

    async def put(self, url: str, body: bytes) -> PutAnswer:
        """Raises CoordinatorUnavailable; ValueError for an address that is none."""
        target = urlsplit(url)
        idle = self._idle.setdefault(target.netloc, [])
        try:
            async with asyncio.timeout(self._timeout_s):
                while idle:
                    # The store may have closed it meanwhile, which says nothing about the request.
                    if (answer := await self._try(idle.pop(), target, body)) is not None:
                        return answer
                answer = await self._try(await _connect(target), target, body)
        except h11.LocalProtocolError as error:
            raise ValueError("the address does not fit a request") from error
        except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise CoordinatorUnavailable(reason, maybe_applied=True) from error
        if answer is None:
            raise CoordinatorUnavailable("the store closed the connection", maybe_applied=True)
        return answer

    def close(self) -> None:
        for wires in self._idle.values():
            for wire in wires:
                wire.close()
        self._idle.clear()

    async def _try(self, wire: "_Wire", target: SplitResult, body: bytes) -> PutAnswer | None:
        """None when the connection ended before an answer began."""
        is_reusable = False
        try:
            answer = await wire.put(target, body)
            is_reusable = answer is not None and wire.is_reusable()
        finally:
            if is_reusable:
                self._idle.setdefault(target.netloc, []).append(wire)
            else:
                wire.close()
        return answer


class _Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)

    async def put(self, target: SplitResult, body: bytes) -> PutAnswer | None:
        path = f"{target.path or '/'}?{target.query}" if target.query else target.path or "/"
        length = ("Content-Length", str(len(body)))
        request = h11.Request(
            method="PUT", target=path, headers=[("Host", target.netloc), length, *_HEADERS]
        )
        parts = (request, h11.Data(data=body), h11.EndOfMessage())
        answer: PutAnswer | None = None
        try:
            self._writer.write(b"".join(self._http.send(part) or b"" for part in parts))
            await self._writer.drain()
            while not isinstance(event := await self._next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    answer = _answer(event)
        except (ConnectionError, h11.RemoteProtocolError):
            if answer is not None:
                raise
        return answer

    def is_reusable(self) -> bool:
        """Also makes it ready for the next request."""
        try:
            self._http.start_next_cycle()
        except h11.LocalProtocolError:
            return False
        return not self._reader.at_eof()

    def close(self) -> None:
        self._writer.close()

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_READ_BYTES))
        return event


async def _connect(target: SplitResult) -> _Wire:
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        return _Wire(*await asyncio.open_connection(target.hostname, target.port or 80))


def _answer(response: h11.Response) -> PutAnswer:
    told = dict(response.headers).get(b"retry-after")
    return PutAnswer(response.status_code, None if told is None else told.decode("latin-1"))
