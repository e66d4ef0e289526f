"""Peers that break the WebSocket protocol itself, say nothing for long, or never listen."""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest

from mitosis_protocol.limits import MAX_FRAME_BYTES
from tests.e2e.cluster import Cluster
from tests.e2e.manager_client import Manager
from tests.e2e.raw_socket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    TEXT,
    announced,
    frame,
    raw_socket,
    request_head,
)
from tests.figures import Figure
from tests.integration.workers.live_user import LiveUser

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

HELLO = json.dumps({"type": "nope", "request_id": 5}).encode()
HALF, DRIPS, DEAF = 500, 500, 200
REQUESTS = 1000
MB = 1e6


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(cluster)
    yield found
    found.close()


@pytest.fixture(scope="module")
def manager(user: LiveUser) -> Manager:
    return Manager(user)


def resident(cluster: Cluster) -> int:
    return int(psutil.Process(cluster.child("web0").pid).memory_info().rss)


VIOLATIONS = {
    "a reserved opcode": (frame(3, b"x"), 1002),
    "a reserved control opcode": (frame(0xB, b"x"), 1002),
    "a reserved bit": (frame(TEXT, HELLO, head=0xC0), 1002),
    "another reserved bit": (frame(TEXT, HELLO, head=0xA0), 1002),
    "no mask": (frame(TEXT, HELLO, is_masked=False), 1002),
    "a fragment of a ping": (frame(PING, b"x", head=0), 1002),
    "a ping of 126 bytes": (frame(PING, b"x" * 126), 1002),
    "a continuation of nothing": (frame(CONTINUATION, b"x"), 1002),
    "a message inside another": (frame(TEXT, b"{", head=0) + frame(TEXT, b"}"), 1002),
    "a close of one byte": (frame(CLOSE, b"\x03"), 1002),
    "a close with code 999": (frame(CLOSE, b"\x03\xe7"), 1002),
    "a close with code 1005": (frame(CLOSE, b"\x03\xed"), 1002),
    "a close with a broken reason": (frame(CLOSE, b"\x03\xe8\xff\xfe"), 1007),
    "a text that is no UTF-8": (frame(TEXT, b"\xff\xfe{}"), 1007),
    "a byte too much": (frame(TEXT, b"x" * (MAX_FRAME_BYTES + 1)), 1009),
    "a gigabyte announced": (announced(1 << 30), 1009),
    "2**63 announced": (announced(1 << 63), 1009),
    "too much in fragments": (
        frame(BINARY, b"x" * 200_000, head=0) + frame(CONTINUATION, b"x" * 200_000),
        1009,
    ),
}


@pytest.mark.parametrize("name", list(VIOLATIONS))
async def test_who_breaks_the_protocol_is_told_so_and_goes_alone(
    name: str, manager: Manager, user: LiveUser, cluster: Cluster
) -> None:
    data, code = VIOLATIONS[name]
    async with raw_socket(cluster.url, manager.token) as socket:
        await socket.send(data)
        assert await socket.close_code() == code
    assert user.http.get("/auth").status_code == 200


async def test_odd_but_lawful_frames_are_answered(manager: Manager, cluster: Cluster) -> None:
    """One byte at a time, with pings in between; then with a hundred thousand empty fragments."""
    before = resident(cluster)
    async with raw_socket(cluster.url, manager.token) as socket:
        pieces = [frame(CONTINUATION, bytes([byte]), head=0) for byte in HELLO[1:-1]]
        message = [frame(TEXT, HELLO[:1], head=0), *pieces, frame(CONTINUATION, HELLO[-1:])]
        await socket.send(frame(PING, b"").join(message))
        opcode = PING
        while opcode != TEXT:
            opcode, answer = await socket.next_frame()
        assert json.loads(answer)["request_id"] == 5
        empty = frame(CONTINUATION, b"", head=0) * 100_000
        await socket.send(frame(TEXT, HELLO, head=0) + empty + frame(CONTINUATION, b""))
        opcode, answer = await socket.next_frame()
        assert (opcode, json.loads(answer)["request_id"]) == (TEXT, 5)
    assert resident(cluster) - before < 50 * MB


async def test_a_hundred_thousand_pings_are_answered_or_end_their_sender(
    manager: Manager, user: LiveUser, cluster: Cluster
) -> None:
    async with raw_socket(cluster.url, manager.token) as socket:
        pongs = 0

        async def hear() -> None:
            nonlocal pongs
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while pongs < 100_000:
                    await socket.next_frame()
                    pongs += 1

        hearing = asyncio.create_task(hear())
        with suppress(ConnectionError):
            for _ in range(100):
                await socket.send(frame(PING, b"x") * 1000)
                assert (await asyncio.to_thread(user.http.get, "/healthz")).status_code == 200
        await hearing
    assert pongs > 0
    assert user.http.get("/auth").status_code == 200


async def test_nobody_is_offered_compression(manager: Manager, cluster: Cluster) -> None:
    """Whoever cannot send a compressed frame cannot send a bomb: it would be a reserved bit."""
    offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
    async with raw_socket(cluster.url, manager.token, offer) as socket:
        assert b"permessage-deflate" not in socket.answer.lower()


async def test_what_comes_before_the_door_is_open_is_not_read(cluster: Cluster) -> None:
    where = urlsplit(cluster.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(request_head(cluster.url, "a.b.c") + b"\r\n" + frame(TEXT, HELLO) * 100)
    async with asyncio.timeout(20):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"request_id" not in answer
    writer.close()


@pytest.mark.alone
async def test_oversize_frames_cost_neither_time_nor_memory(
    manager: Manager, cluster: Cluster, figure: Figure
) -> None:
    took_ms, before = [], resident(cluster)
    data = (frame(TEXT, b"x" * (MAX_FRAME_BYTES + 1)), announced(1 << 30))
    for n in range(20):
        async with raw_socket(cluster.url, manager.token) as socket:
            began = time.monotonic()
            await socket.send(data[n % 2])
            assert await socket.close_code() == 1009
            took_ms.append(1000 * (time.monotonic() - began))
    figure("oversize frame: socket closed", statistics.median(took_ms), "ms", at_most=100)
    figure("oversize frames: memory", (resident(cluster) - before) / MB, "MB", at_most=10)


@asynccontextmanager
async def half_handshakes(cluster: Cluster, manager: Manager) -> AsyncIterator[None]:
    """Some never finish their request; others add a byte now and then."""
    where = urlsplit(cluster.url)
    head = request_head(cluster.url, manager.token)
    opened = [
        await asyncio.open_connection(where.hostname, where.port) for _ in range(HALF + DRIPS)
    ]
    writers = [writer for _, writer in opened]
    for writer in writers[:HALF]:
        writer.write(head[: len(head) // 2])

    async def drip() -> None:
        for byte in head:
            for writer in writers[HALF:]:
                writer.write(bytes([byte]))
            await asyncio.sleep(0.2)

    dripping = asyncio.create_task(drip())
    try:
        yield
    finally:
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()


@asynccontextmanager
async def deaf_managers(user: LiveUser) -> AsyncIterator[None]:
    """They ask and never read what they are told."""
    made = [await asyncio.to_thread(Manager, user) for _ in range(DEAF)]
    asks = frame(TEXT, json.dumps({"type": "hello", "request_id": 1}).encode()) * 20
    async with AsyncExitStack() as stack:
        for one in made:
            socket = await stack.enter_async_context(raw_socket(user.cluster.url, one.token))
            socket.reader._transport.pause_reading()  # type: ignore[attr-defined]
            await socket.send(asks)
        yield


@pytest.mark.timeout(300)
async def test_a_thousand_half_requests_and_deaf_managers_do_not_keep_others_out(
    user: LiveUser, cluster: Cluster, manager: Manager, figure: Figure
) -> None:
    served = 0
    headers = {"Authorization": user.http.headers["Authorization"]}
    async with deaf_managers(user), half_handshakes(cluster, manager):
        for n in range(REQUESTS // 20):
            # A new connection for each handful, as new clients make.
            async with httpx2.AsyncClient(
                base_url=cluster.url, headers=headers, timeout=10
            ) as http:
                answers = await asyncio.gather(
                    *(http.get("/auth" if n % 2 else "/users/groups") for _ in range(20)),
                    return_exceptions=True,
                )
            served += sum(
                not isinstance(one, BaseException) and one.status_code == 200 for one in answers
            )
    figure("slow-loris: others served", 100 * served / REQUESTS, "%", at_least=99.9)
    assert "socket.crashed" not in cluster.log("web0")
