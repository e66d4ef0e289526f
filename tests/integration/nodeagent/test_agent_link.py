"""The link against a real WebSocket server that behaves as badly as networks do."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import pytest
import structlog
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from mitosis_protocol.from_manager import FetchTasks, Hello
from mitosis_protocol.to_manager import TasksReady, ToManager
from nodeagent.coordinator.link import Link, socket_url
from nodeagent.errors import (
    AuthRejected,
    CoordinatorUnavailable,
    IdentityTaken,
    LinkLost,
    ProtocolMismatch,
)
from nodeagent.worker.retry import Backoff

QUICK = Backoff(base_s=0.02, cap_s=0.1, floor_s=0.005)
SUITE = uuid4()
READY = json.dumps({"type": "tasks_ready", "suite_uuid": str(SUITE)})


class Tokens:
    """Tokens `t0`, `t1`, ...; renewing may be refused or impossible."""

    def __init__(self) -> None:
        self.number = 0
        self.renewals = 0
        self.trouble: Exception | None = None

    def current(self) -> str:
        return f"t{self.number}"

    async def renew(self, refused: str) -> str:
        self.renewals += 1
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            raise trouble
        if refused == self.current():
            self.number += 1
        return self.current()


class Listener:
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.frames: list[ToManager] = []
        self.news = asyncio.Event()

    def _note(self, what: str) -> None:
        self.heard.append(what)
        self.news.set()

    def on_link_up(self) -> None:
        self._note("up")

    def on_frame(self, message: ToManager) -> None:
        self.frames.append(message)
        self._note("frame")

    def on_link_lost(self, reason: str) -> None:
        self._note(f"lost: {reason}")

    async def until(self, check: Callable[[], bool], within_s: float = 20) -> None:
        async with asyncio.timeout(within_s):
            while not check():
                self.news.clear()
                await self.news.wait()


class Peer:
    """The other side: `serve_one` gets each connection with its number from 1."""

    def __init__(self, serve_one: Callable[[ServerConnection, int], Any]) -> None:
        self._serve_one = serve_one
        self.bearers: list[str] = []
        self.refusals: list[HTTPStatus] = []
        self.accepted = 0
        self.port = 0
        self._server: Server | None = None

    async def start(self) -> None:
        self._server = await serve(
            self._handle, "127.0.0.1", self.port, process_request=self._admit
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        assert request.path == "/ws/managers"
        self.bearers.append(request.headers["Authorization"])
        if self.refusals:
            return connection.respond(self.refusals.pop(0), "no\n")
        return None

    async def _handle(self, connection: ServerConnection) -> None:
        self.accepted += 1
        await self._serve_one(connection, self.accepted)


@asynccontextmanager
async def linked(
    peer: Peer, tokens: Tokens | None = None
) -> AsyncIterator[tuple[Link, Listener, "asyncio.Task[None]"]]:
    await peer.start()
    listener = Listener()
    link = Link(peer.url, tokens or Tokens(), listener, backoff=QUICK)
    running = asyncio.create_task(link.run())
    try:
        yield link, listener, running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await peer.stop()


async def _stay(connection: ServerConnection, _number: int) -> None:
    await connection.wait_closed()


async def test_frames_go_both_ways_with_the_token_in_the_upgrade() -> None:
    received: list[dict[str, Any]] = []

    async def echo(connection: ServerConnection, _number: int) -> None:
        async for frame in connection:
            received.append(json.loads(frame))
            await connection.send(READY)

    peer = Peer(echo)
    async with linked(peer) as (link, listener, _):
        await listener.until(lambda: "up" in listener.heard)
        link.send(Hello(request_id=1, process_id=uuid4()))
        link.send(FetchTasks(request_id=2, max_tasks=3))
        await listener.until(lambda: len(listener.frames) == 2)
        assert listener.frames[0] == TasksReady(suite_uuid=SUITE)
    assert [frame["type"] for frame in received] == ["hello", "fetch_tasks"]
    assert peer.bearers == ["Bearer t0"]


async def test_an_unreadable_frame_is_skipped_and_the_socket_lives() -> None:
    async def babble(connection: ServerConnection, _number: int) -> None:
        await connection.send("{not json")
        await connection.send('{"type": "message_of_a_later_version"}')
        await connection.send(READY)
        await connection.wait_closed()

    async with linked(Peer(babble)) as (_, listener, _):
        await listener.until(lambda: bool(listener.frames))
        assert listener.heard == ["up", "frame"]


async def test_nothing_is_sent_without_a_connection() -> None:
    link = Link("http://127.0.0.1:9", Tokens(), Listener())
    with pytest.raises(LinkLost):
        link.send(FetchTasks(request_id=1, max_tasks=1))


async def test_a_frame_beyond_the_limit_is_refused_before_it_is_sent() -> None:
    async with linked(Peer(_stay)) as (link, listener, _):
        await listener.until(lambda: "up" in listener.heard)
        inventory = Hello(request_id=1, process_id=uuid4(), inventory=[2**62] * 20_000)
        with pytest.raises(ValueError, match="at most"):
            link.send(inventory)


async def test_a_coordinator_that_restarts_is_found_again() -> None:
    peer = Peer(_stay)
    async with linked(peer) as (link, listener, _):
        await listener.until(lambda: "up" in listener.heard)
        await peer.stop()
        await listener.until(lambda: len(listener.heard) == 2)
        assert listener.heard[1].startswith("lost: ")
        assert not link.is_up
        await asyncio.sleep(0.2)
        await peer.start()
        await listener.until(lambda: listener.heard.count("up") == 2)


async def test_an_absent_coordinator_costs_one_line_however_long_it_is_away() -> None:
    peer = Peer(_stay)
    await peer.start()
    await peer.stop()
    link = Link(peer.url, Tokens(), Listener(), backoff=QUICK)
    with structlog.testing.capture_logs() as lines, contextlib.suppress(TimeoutError):
        await asyncio.wait_for(link.run(), 1.0)
    warnings = [line for line in lines if line["log_level"] == "warning"]
    tries = [line for line in lines if line["event"] == "link.waiting"]
    assert [line["event"] for line in warnings] == ["link.down"]
    assert warnings[0]["reason"] == "connection refused"
    assert len(tries) >= 5


async def test_an_expired_token_is_renewed_and_used_at_once() -> None:
    async def expire_first(connection: ServerConnection, number: int) -> None:
        if number == 1:
            await connection.close(4401, "token expired")
        await connection.wait_closed()

    peer, tokens = Peer(expire_first), Tokens()
    async with linked(peer, tokens) as (_, listener, _):
        await listener.until(lambda: listener.heard.count("up") == 2)
    assert peer.bearers == ["Bearer t0", "Bearer t1"]
    assert listener.heard[1] == "lost: token refused, code 4401 (token expired)"


async def test_a_refused_upgrade_renews_the_token_even_after_an_outage() -> None:
    peer, tokens = Peer(_stay), Tokens()
    peer.refusals = [
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.UNAUTHORIZED,
    ]
    async with linked(peer, tokens) as (_, listener, _):
        await listener.until(lambda: "up" in listener.heard)
    assert peer.bearers == ["Bearer t0", "Bearer t0", "Bearer t0", "Bearer t1"]


async def test_renewing_waits_for_a_coordinator_that_cannot_now() -> None:
    peer, tokens = Peer(_stay), Tokens()
    peer.refusals = [HTTPStatus.UNAUTHORIZED, HTTPStatus.UNAUTHORIZED]
    tokens.trouble = CoordinatorUnavailable("answered 503")
    async with linked(peer, tokens) as (_, listener, _):
        await listener.until(lambda: "up" in listener.heard)
    assert (tokens.renewals, peer.bearers[-1]) == (2, "Bearer t1")


async def test_a_token_refused_twice_in_a_row_ends_the_agent() -> None:
    peer = Peer(_stay)
    peer.refusals = [HTTPStatus.UNAUTHORIZED] * 10
    async with linked(peer) as (_, _, running):
        with pytest.raises(AuthRejected, match="just issued"):
            await asyncio.wait_for(running, 20)


async def test_a_refused_renewal_ends_the_agent() -> None:
    peer, tokens = Peer(_stay), Tokens()
    peer.refusals = [HTTPStatus.UNAUTHORIZED]
    tokens.trouble = AuthRejected("revoked")
    async with linked(peer, tokens) as (_, _, running):
        with pytest.raises(AuthRejected, match="revoked"):
            await asyncio.wait_for(running, 20)


async def test_a_server_that_says_403_to_everything_is_tried_again() -> None:
    peer, tokens = Peer(_stay), Tokens()
    peer.refusals = [HTTPStatus.FORBIDDEN] * 3
    async with linked(peer, tokens) as (_, listener, _):
        await listener.until(lambda: "up" in listener.heard)
    assert tokens.renewals == 1


async def test_a_second_agent_with_our_identity_ends_this_one() -> None:
    async def supersede(connection: ServerConnection, _number: int) -> None:
        await connection.close(4409, "superseded")

    async with linked(Peer(supersede)) as (_, listener, running):
        with pytest.raises(IdentityTaken, match="data directory of its own"):
            await asyncio.wait_for(running, 20)
        # The first time it could have been a try of our own earlier life.
        assert listener.heard == ["up", "lost: superseded, code 4409 (superseded)"] * 2


async def test_what_an_earlier_life_left_half_open_is_no_second_agent() -> None:
    async def supersede_once(connection: ServerConnection, number: int) -> None:
        if number == 1:
            await connection.close(4409, "superseded")
        await connection.wait_closed()

    async with linked(Peer(supersede_once)) as (_, listener, _):
        await listener.until(lambda: listener.heard.count("up") == 2)


async def test_a_lost_lease_is_no_second_agent() -> None:
    async def lose(connection: ServerConnection, number: int) -> None:
        if number == 1:
            error = {"type": "error", "code": "session.lease_lost", "message": "lease lost"}
            await connection.send(json.dumps(error))
            await connection.close(4409, "lease lost")
        await connection.wait_closed()

    async with linked(Peer(lose)) as (_, listener, _):
        await listener.until(lambda: listener.heard.count("up") == 2)


async def test_our_own_half_open_tries_are_no_second_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The try that broke off was accepted after the one that followed it; so was an older one."""
    monkeypatch.setattr("nodeagent.coordinator.link.MAX_GHOSTS", 2)

    async def supersede_twice(connection: ServerConnection, number: int) -> None:
        if number <= 2:
            await connection.close(4409, "superseded")
        await connection.wait_closed()

    peer = Peer(supersede_twice)
    broken = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
    peer.port = broken.sockets[0].getsockname()[1]
    listener = Listener()
    link = Link(peer.url, Tokens(), listener, backoff=QUICK)
    running = asyncio.create_task(link.run())
    try:
        await asyncio.sleep(0.2)
        broken.close()
        await broken.wait_closed()
        await peer.start()
        await listener.until(lambda: listener.heard.count("up") == 3)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await peer.stop()


async def test_a_coordinator_of_another_protocol_ends_the_agent() -> None:
    async def refuse(connection: ServerConnection, _number: int) -> None:
        await connection.close(4400, "protocol version 9 or newer is needed")

    async with linked(Peer(refuse)) as (_, _, running):
        with pytest.raises(ProtocolMismatch, match="version 9"):
            await asyncio.wait_for(running, 20)


async def test_too_many_frames_mean_a_longer_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeagent.coordinator.link.SLOW_DOWN_S", 0.5)
    times: list[float] = []

    async def overload(connection: ServerConnection, number: int) -> None:
        times.append(asyncio.get_running_loop().time())
        if number == 1:
            await connection.close(4429, "too many frames")
        await connection.wait_closed()

    async with linked(Peer(overload)) as (_, listener, _):
        await listener.until(lambda: listener.heard.count("up") == 2)
    assert times[1] - times[0] >= 0.5


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://h:5000", "ws://h:5000/ws/managers"),
        ("https://h/mitosis/", "wss://h/mitosis/ws/managers"),
    ],
)
def test_the_socket_is_where_the_operator_said(address: str, expected: str) -> None:
    assert socket_url(address) == expected
