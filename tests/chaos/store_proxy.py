"""An object store that has its days: slow, failing, refusing, gone in the middle of an upload.

Stands in front of the real one and hurts single requests. Each connection carries one request
(both sides are told that it closes), so that what is ordered meets exactly one. Signatures cover
the address of this proxy, which is the store's address for everybody.
"""

import asyncio
import re
from collections import Counter, deque
from typing import Final, Literal

from tests.chaos.ws_proxy import MAX_HEAD_BYTES, Witness, WsProxy, _Connection

# 503, 403; late; cut off with half of the body there; done, and the answer lost.
StoreFault = Literal["error", "refuse", "slow", "half", "mute"]

# A worker whose upload was refused three times commits its task without it, and says so.
MAX_REFUSALS: Final = 2
_REFUSALS: Final = {
    "error": (b"503 Service Unavailable", b"SlowDown"),
    "refuse": (b"403 Forbidden", b"AccessDenied"),
}
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_WAITS: Final = re.compile(rb"\r\nexpect: *100-continue", re.IGNORECASE)


class StoreProxy(WsProxy):
    """`order_fault`: the next request suffers it."""

    def __init__(self, target: int, witness: Witness | None = None) -> None:
        super().__init__(target, witness)
        self._faults: deque[tuple[StoreFault, float]] = deque()
        self._refused: Counter[bytes] = Counter()

    def order_fault(self, kind: StoreFault, *, seconds: float = 0.0) -> None:
        self._faults.append((kind, seconds))

    def waiting_orders(self) -> int:
        return super().waiting_orders() + len(self._faults)

    async def _carry(
        self, one: _Connection, client: asyncio.StreamReader, server: asyncio.StreamReader
    ) -> None:
        await self._open["up"].wait()
        head = await client.readuntil(b"\r\n\r\n")
        await self._open["up"].wait()
        kind, seconds = self._fault_for(head)
        if kind in _REFUSALS:
            await self._refuse(one, client, head, kind)
            return
        if kind == "slow":
            await asyncio.sleep(seconds)
        one.server.write(_closing(head))
        if kind == "half":
            half = await client.readexactly(_body_bytes(head) // 2)
            one.server.write(half)
            await one.server.drain()
            return  # both sides are reset
        up = asyncio.create_task(self._bytes("up", one, client, one.server))
        try:
            if kind == "mute":
                await server.read(MAX_HEAD_BYTES)
                return
            await self._answer(one, server)
            await _hang_up(one)
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)

    async def _answer(self, one: _Connection, server: asyncio.StreamReader) -> None:
        head = await server.readuntil(b"\r\n\r\n")
        while head.split(b" ", 2)[1] == b"100":  # the body may come; the answer follows it
            one.client.write(head)
            head = await server.readuntil(b"\r\n\r\n")
        await self._open["down"].wait()
        one.client.write(_closing(head))
        await self._bytes("down", one, server, one.client)

    def _fault_for(self, head: bytes) -> tuple[str, float]:
        """What happens to this request: an empty word if nothing."""
        path = head.split(b" ", 2)[1].partition(b"?")[0]
        if not self._faults:
            return "", 0.0
        kind, seconds = self._faults[0]
        if kind == "refuse":
            if self._refused[path] >= MAX_REFUSALS:
                return "", 0.0
            self._refused[path] += 1
        self._faults.popleft()
        self.happened[f"store {kind}"] += 1
        return kind, seconds

    async def _refuse(
        self, one: _Connection, client: asyncio.StreamReader, head: bytes, kind: str
    ) -> None:
        if not _WAITS.search(head):
            await client.readexactly(_body_bytes(head))
        status, code = _REFUSALS[kind]
        body = b"<Error><Code>%b</Code></Error>" % code
        one.client.write(
            b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Type: application/xml\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (status, len(body), body)
        )
        await _hang_up(one)


async def _hang_up(one: _Connection) -> None:
    """Only once everything is on its way: what follows is a reset."""
    one.client.close()
    await one.client.wait_closed()


def _closing(head: bytes) -> bytes:
    """No request after this one: an order is for one request, and here that is one connection."""
    return head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


def _body_bytes(head: bytes) -> int:
    found = _LENGTH.search(head)
    return int(found[1]) if found else 0
