"""The proxy itself: what it lets through is whole, and what it does to frames is what was said."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.chaos.ws_proxy import Direction, FrameFault, WsProxy

PATIENCE_S = 20.0


class Upstream:
    """Answers `n` with `re:n` and remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.closed = asyncio.Event()

    async def __call__(self, socket: ServerConnection) -> None:
        try:
            async for message in socket:
                self.heard.append(str(message))
                await socket.send(f"re:{message}")
        finally:
            self.closed.set()


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[WsProxy, Upstream, ClientConnection]]:
    upstream = Upstream()
    async with serve(upstream, "127.0.0.1", 0) as server:
        proxy = WsProxy(server.sockets[0].getsockname()[1])
        await proxy.start()
        try:
            async with connect(f"ws://127.0.0.1:{proxy.port}", close_timeout=1) as client:
                yield proxy, upstream, client
        finally:
            await proxy.stop()


async def _next(client: ClientConnection) -> str:
    return str(await asyncio.wait_for(client.recv(), PATIENCE_S))


async def test_frames_of_every_length_pass_unchanged():
    async with linked() as (_, _, client):
        for size in (0, 1, 125, 126, 65_535, 65_536, 300_000):
            await client.send("x" * size)
            assert await _next(client) == "re:" + "x" * size


@pytest.mark.parametrize(
    ("kind", "direction", "answers"),
    [
        ("drop", "up", ["re:2", "re:3"]),
        ("drop", "down", ["re:2", "re:3"]),
        ("duplicate", "up", ["re:1", "re:1", "re:2", "re:3"]),
        ("duplicate", "down", ["re:1", "re:1", "re:2", "re:3"]),
        ("reorder", "up", ["re:2", "re:1", "re:3"]),
        ("reorder", "down", ["re:2", "re:1", "re:3"]),
        ("delay", "up", ["re:1", "re:2", "re:3"]),
    ],
)
async def test_the_next_frame_suffers_the_ordered_fault_and_no_other(
    kind: FrameFault, direction: Direction, answers: list[str]
) -> None:
    async with linked() as (proxy, _, client):
        proxy.order(kind, direction, seconds=0.05)
        for number in ("1", "2", "3"):
            await client.send(number)
        assert [await _next(client) for _ in answers] == answers
        await client.send("last")
        assert await _next(client) == "re:last"
        assert proxy.happened[f"{kind} {direction}"] == 1
        assert proxy.waiting_orders() == 0


async def test_a_frame_without_a_successor_is_not_kept_for_ever():
    async with linked() as (proxy, _, client):
        proxy.order("reorder", "up")
        await client.send("alone")
        assert await _next(client) == "re:alone"
        assert proxy.happened["reorder up"] == 0


async def test_what_was_sent_during_a_partition_arrives_when_it_heals():
    async with linked() as (proxy, upstream, client):
        proxy.partition("up")
        await client.send("late")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.recv(), 0.3)
        assert upstream.heard == []
        proxy.heal()
        assert await _next(client) == "re:late"


async def test_a_one_way_partition_lets_the_other_way_through():
    async with linked() as (proxy, upstream, client):
        proxy.partition("down")
        await client.send("heard")
        async with asyncio.timeout(PATIENCE_S):
            while upstream.heard != ["heard"]:  # noqa: ASYNC110 - a list has no event
                await asyncio.sleep(0.01)
        proxy.heal()
        assert await _next(client) == "re:heard"


async def test_a_half_open_connection_ends_for_the_coordinator_alone():
    async with linked() as (proxy, upstream, client):
        await client.send("before")
        assert await _next(client) == "re:before"
        proxy.half_open()
        await asyncio.wait_for(upstream.closed.wait(), PATIENCE_S)
        await client.send("into the void")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.recv(), 0.3)
        proxy.heal()
        with pytest.raises(ConnectionClosed):
            await _next(client)


async def test_a_cut_is_heard_on_both_sides_and_a_new_connection_works():
    async with linked() as (proxy, upstream, client):
        proxy.cut()
        with pytest.raises(ConnectionClosed):
            await _next(client)
        await asyncio.wait_for(upstream.closed.wait(), PATIENCE_S)
        async with connect(f"ws://127.0.0.1:{proxy.port}") as again:
            await again.send("back")
            assert await _next(again) == "re:back"


async def test_plain_http_passes_and_an_absent_target_ends_the_connection():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        proxy = WsProxy(server.sockets[0].getsockname()[1])
        await proxy.start()
        assert (await _get(proxy.port)).endswith(b"\r\n\r\nhi")
        server.close()
        await server.wait_closed()
        with suppress(ConnectionResetError):
            assert await _get(proxy.port) == b""
        await proxy.stop()


async def _get(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        return await asyncio.wait_for(reader.read(), PATIENCE_S)
    finally:
        writer.close()
