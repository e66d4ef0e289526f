"""A TCP proxy that understands WebSockets and can hurt what passes through it.

Bytes of plain HTTP go through as they come. After an upgrade every frame is a unit: it can be
delayed, dropped, sent twice, or swapped with the next one. Connections as a whole can be cut
(both ends are told), left half open (one end is not told), or partitioned (bytes wait, as they
would in the kernel of a cut-off host) in one direction or both. Faults are ordered one by one and
counted when they happen, so a run can say what it did. One per address, on the loop that made it.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

Direction = Literal["up", "down"]  # to the coordinator, from it
FrameFault = Literal["delay", "drop", "duplicate", "reorder"]
# Called with every data frame that arrives, whatever becomes of it: direction, connection, payload.
Witness = Callable[[Direction, int, bytes], None]

BOTH: Final[tuple[Direction, ...]] = ("up", "down")
MAX_HEAD_BYTES: Final = 64 * 1024
# A frame that waits for its successor is not kept for ever: there may be none.
REORDER_PATIENCE_S: Final = 0.5
_DATA_OPCODES: Final = (1, 2)
_FIN: Final = 0x80


@dataclass
class Frame:
    """One frame as it was on the wire; the mask is part of it, so copies and swaps are valid."""

    raw: bytes
    opcode: int
    is_whole: bool
    payload: bytes

    @property
    def can_be_hurt(self) -> bool:
        """Fragments and control frames are left alone: losing one breaks the connection itself."""
        return self.is_whole and self.opcode in _DATA_OPCODES


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """Raises IncompleteReadError at the end of the stream."""
    head = await reader.readexactly(2)
    length = head[1] & 0x7F
    is_masked = bool(head[1] & 0x80)
    extended = b""
    if length >= 126:
        extended = await reader.readexactly(2 if length == 126 else 8)
        length = int.from_bytes(extended, "big")
    mask = await reader.readexactly(4) if is_masked else b""
    body = await reader.readexactly(length)
    return Frame(
        raw=head + extended + mask + body,
        opcode=head[0] & 0x0F,
        is_whole=bool(head[0] & _FIN),
        payload=_unmasked(body, mask) if is_masked else body,
    )


def _unmasked(body: bytes, mask: bytes) -> bytes:
    if not body:
        return body
    key = (mask * (len(body) // 4 + 1))[: len(body)]
    return (int.from_bytes(body, "big") ^ int.from_bytes(key, "big")).to_bytes(len(body), "big")


@dataclass
class _Order:
    """A fault that waits for its frame."""

    kind: FrameFault
    seconds: float


@dataclass(eq=False)
class _Connection:
    number: int
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    is_half_open: bool = False
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    def abort(self) -> None:
        for writer in (self.client, self.server):
            writer.transport.abort()


class WsProxy:
    """Listens on a port of loopback; `target` may be changed while it runs."""

    def __init__(self, target: int, witness: Witness | None = None) -> None:
        self.target = target
        self.port = 0
        self.happened: Counter[str] = Counter()
        self._witness = witness
        self._orders: dict[Direction, deque[_Order]] = {"up": deque(), "down": deque()}
        self._open: dict[Direction, asyncio.Event] = {
            "up": asyncio.Event(),
            "down": asyncio.Event(),
        }
        self._connections: set[_Connection] = set()
        self._count = 0
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        for gate in self._open.values():
            gate.set()
        self._server = await asyncio.start_server(
            self._accepted, "127.0.0.1", port, limit=MAX_HEAD_BYTES
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.heal()
        self.cut()
        tasks = [task for one in self._connections for task in one.tasks]
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def connections(self) -> int:
        return len(self._connections)

    # Faults

    def order(self, kind: FrameFault, direction: Direction, *, seconds: float = 0.0) -> None:
        """The next data frame of that direction suffers it."""
        self._orders[direction].append(_Order(kind, seconds))

    def waiting_orders(self) -> int:
        return sum(len(orders) for orders in self._orders.values())

    def partition(self, *directions: Direction) -> None:
        """Nothing passes until `heal`; nobody is told."""
        for direction in directions or BOTH:
            self._open[direction].clear()
        self.happened[f"partition {'+'.join(directions or BOTH)}"] += 1

    def half_open(self) -> None:
        """The coordinator sees connections end; the other side goes on talking to nobody."""
        for one in self._connections:
            one.is_half_open = True
            one.server.transport.abort()
        self.happened["half-open"] += 1

    def cut(self) -> None:
        """Reset every connection."""
        for one in self._connections:
            one.abort()
        self.happened["cut"] += 1

    def heal(self) -> None:
        """End partitions; who was left half open now hears that its peer is gone."""
        for gate in self._open.values():
            gate.set()
        for one in self._connections:
            if one.is_half_open:
                one.abort()

    # The way of the bytes

    async def _accepted(
        self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter
    ) -> None:
        try:
            server_reader, server = await asyncio.open_connection(
                "127.0.0.1", self.target, limit=MAX_HEAD_BYTES
            )
        except OSError:
            client.transport.abort()
            return
        self._count += 1
        one = _Connection(self._count, client, server)
        self._connections.add(one)
        current = asyncio.current_task()
        assert current is not None
        one.tasks.append(current)
        try:
            await self._carry(one, client_reader, server_reader)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # an end of either side is the end of both, below
        finally:
            self._connections.discard(one)
            one.abort()

    async def _carry(
        self, one: _Connection, client: asyncio.StreamReader, server: asyncio.StreamReader
    ) -> None:
        await self._open["up"].wait()
        request = await client.readuntil(b"\r\n\r\n")
        await self._open["up"].wait()
        one.server.write(request)
        is_socket = b"upgrade: websocket" in request.lower()
        if is_socket:
            answer = await server.readuntil(b"\r\n\r\n")
            await self._open["down"].wait()
            one.client.write(answer)
            is_socket = answer.split(b" ", 2)[1:2] == [b"101"]
        pump = self._frames if is_socket else self._bytes
        pumps = [
            asyncio.create_task(pump("up", one, client, one.server)),
            asyncio.create_task(pump("down", one, server, one.client)),
        ]
        one.tasks.extend(pumps)
        try:
            await self._first_end(one, pumps)
        finally:
            for task in pumps:
                task.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _first_end(self, one: _Connection, pumps: list["asyncio.Task[None]"]) -> None:
        """Until a side ended, unless the other one must not know; then until it gives up too."""
        done, rest = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.exception()
        if one.is_half_open and rest:
            await asyncio.wait(rest)

    async def _bytes(
        self,
        direction: Direction,
        one: _Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        while chunk := await reader.read(MAX_HEAD_BYTES):
            await self._open[direction].wait()
            await self._put(one, direction, writer, chunk)
        if not one.is_half_open:
            with contextlib.suppress(OSError):
                writer.write_eof()

    async def _frames(
        self,
        direction: Direction,
        one: _Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        held: Frame | None = None
        reading = asyncio.ensure_future(read_frame(reader))
        try:
            while True:
                # Never cancelled by the patience: half a frame would be lost with it.
                patience = None if held is None else REORDER_PATIENCE_S
                await asyncio.wait({reading}, timeout=patience)
                frame: Frame | None = None
                if reading.done():
                    frame = reading.result()
                    if self._witness is not None and frame.can_be_hurt:
                        self._witness(direction, one.number, frame.payload)
                    reading = asyncio.ensure_future(read_frame(reader))
                await self._open[direction].wait()
                held = await self._next_frame(direction, one, writer, frame, held)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _next_frame(
        self,
        direction: Direction,
        one: _Connection,
        writer: asyncio.StreamWriter,
        frame: Frame | None,
        held: Frame | None,
    ) -> Frame | None:
        """Handles a frame, or None when none came in time; returns the one that is held back."""
        if frame is not None:
            order = self._order_for(direction, frame) if held is None else None
            if order is not None and order.kind == "reorder":
                return frame
            await self._let_through(direction, one, writer, frame, order)
        if held is not None:
            self.happened[f"reorder {direction}"] += frame is not None
            await self._let_through(direction, one, writer, held, None)
        return None

    def _order_for(self, direction: Direction, frame: Frame) -> _Order | None:
        orders = self._orders[direction]
        return orders.popleft() if orders and frame.can_be_hurt else None

    async def _let_through(
        self,
        direction: Direction,
        one: _Connection,
        writer: asyncio.StreamWriter,
        frame: Frame,
        order: _Order | None,
    ) -> None:
        copies = 1
        if order is not None:
            self.happened[f"{order.kind} {direction}"] += 1
            if order.kind == "delay":
                await asyncio.sleep(order.seconds)
            else:
                copies = 0 if order.kind == "drop" else 2
        for _ in range(copies):
            await self._put(one, direction, writer, frame.raw)

    async def _put(
        self, one: _Connection, direction: Direction, writer: asyncio.StreamWriter, data: bytes
    ) -> None:
        if one.is_half_open and direction == "up":
            return  # swallowed: there is nobody behind us any more
        writer.write(data)
        await writer.drain()
