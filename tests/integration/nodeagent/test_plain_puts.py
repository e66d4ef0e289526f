"""PUT of small archives over plain connections: kept open, replaced when lost, never guessed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from nodeagent.errors import CoordinatorUnavailable
from nodeagent.worker.plain_puts import PlainPuts
from nodeagent.worker.transfers import Transfers, UploadRefused

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Store:
    """A store that reads whole requests and says what it is told to say."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.requests: list[tuple[int, bytes, bytes]] = []  # connection, head, body
        self.connections = 0
        self.closes_after: Callable[[bytes], bool] = lambda answer: b"Connection: close" in answer
        self.url = ""
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self._writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                )
                self.requests.append((number, head, await reader.readexactly(length)))
                answer = self.answers.pop(0) if self.answers else OK
                writer.write(answer)
                await writer.drain()
                if self.closes_after(answer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def hang_up(self) -> None:
        """Close what is open, as a store does with connections nobody uses."""
        for writer in self._writers:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Store, Transfers]]:
    store, transfers = Store(), Transfers()
    server = await asyncio.start_server(store.serve, "127.0.0.1", 0)
    store.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/bucket/a%20key?X-Sig=1&y=2"
    try:
        yield store, transfers
    finally:
        await transfers.close()
        server.close()
        await store.hang_up()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def test_archives_travel_whole_over_one_connection() -> None:
    async with running() as (store, transfers):
        bodies = [b"", b"x", bytes(range(256)) * 1024]
        for body in bodies:
            await transfers.upload(store.url, body, len(body))
        assert [body for _, _, body in store.requests] == bodies
        assert store.connections == 1
        head = store.requests[1][1]
        assert head.startswith(b"PUT /bucket/a%20key?X-Sig=1&y=2 HTTP/1.1\r\n")
        assert b"authorization" not in head.lower()


async def test_two_at_a_time_take_two_connections() -> None:
    async with running() as (store, transfers):
        await asyncio.gather(*[transfers.upload(store.url, b"x", 1) for _ in range(2)])
        assert {number for number, _, _ in store.requests} == {1, 2}


async def test_a_connection_that_the_store_closed_meanwhile_is_replaced() -> None:
    async with running() as (store, transfers):
        await transfers.upload(store.url, b"one", 3)
        await store.hang_up()
        await transfers.upload(store.url, b"two", 3)
        assert [body for _, _, body in store.requests] == [b"one", b"two"]
        assert store.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nuntil the end",
    ],
)
async def test_a_store_that_says_goodbye_is_not_asked_on_the_same_connection(answer: bytes) -> None:
    async with running() as (store, transfers):
        store.answers = [answer]
        await transfers.upload(store.url, b"one", 3)
        await transfers.upload(store.url, b"two", 3)
        assert [number for number, _, _ in store.requests] == [1, 2]


async def test_a_chunked_answer_is_read_to_its_end() -> None:
    async with running() as (store, transfers):
        store.answers = [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        ]
        await transfers.upload(store.url, b"one", 3)
        await transfers.upload(store.url, b"two", 3)
        assert store.connections == 1


async def test_a_refusal_asks_for_a_fresh_address() -> None:
    async with running() as (store, transfers):
        store.answers = [b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"]
        with pytest.raises(UploadRefused, match="403"):
            await transfers.upload(store.url, b"x", 1)


async def test_a_store_that_is_busy_is_asked_again_when_it_says() -> None:
    async with running() as (store, transfers):
        store.answers = [
            b"HTTP/1.1 503 Slow Down\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n",
        ]
        with pytest.raises(CoordinatorUnavailable) as caught:
            await transfers.upload(store.url, b"x", 1)
        assert caught.value.retry_after_s == 7.0


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut", b"this is no HTTP\r\n\r\n"]
)
async def test_half_an_answer_is_no_answer(answer: bytes) -> None:
    async with running() as (store, transfers):
        store.answers = [answer]
        store.closes_after = lambda _: True
        with pytest.raises(CoordinatorUnavailable):
            await transfers.upload(store.url, b"x", 1)


async def test_a_store_that_is_away_or_silent_is_asked_again_later() -> None:
    async with running() as (store, _):
        puts = PlainPuts(timeout_s=0.3)
        store.answers = [b"HTTP/1.1 200 OK\r\n"]
        with pytest.raises(CoordinatorUnavailable, match="Timeout"):
            await puts.put(store.url, b"x")
        puts.close()
    with pytest.raises(CoordinatorUnavailable):
        await PlainPuts(timeout_s=10).put("http://127.0.0.1:9/x", b"x")


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/x", "http://[::1/x", ""])
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    transfers = Transfers()
    with pytest.raises(UploadRefused):
        await transfers.upload(url, b"x", 1)
    await transfers.close()


async def test_an_address_that_would_break_the_request_is_refused() -> None:
    async with running() as (store, transfers):
        with pytest.raises(UploadRefused):
            await transfers.upload(f"{store.url} HTTP/1.1\t", b"x", 1)
        assert store.requests == []


async def test_tls_and_proxies_are_the_general_clients_business(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    puts = PlainPuts(timeout_s=1)
    assert puts.takes("http://store/x")
    assert not puts.takes("https://store/x")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert not PlainPuts(timeout_s=1).takes("http://store/x")
