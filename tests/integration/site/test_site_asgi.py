"""The ASGI application as servers call it: lifespan, body limits, unknown sockets, its pool."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Iterable

import pytest
from asgiref.testing import ApplicationCommunicator

from core.pg import close_pool, get_pool
from mitosis_site.asgi import application, body_limit_of
from mitosis_site.runtime import Message, Runtime
from tests.harness import TestServices

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
async def fresh_runtime(services: TestServices) -> AsyncIterator[None]:
    """The application is one per process; each test starts it anew."""
    await application._stop()
    yield
    await application._stop()
    await close_pool()


async def answer(path: str, chunks: Iterable[bytes], headers: dict[str, str]) -> tuple[int, bytes]:
    """Status and body of a POST whose body arrives in pieces."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")]
        + [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    communicator = ApplicationCommunicator(application, scope)
    for chunk in chunks:
        await communicator.send_input({"type": "http.request", "body": chunk, "more_body": True})
    await communicator.send_input({"type": "http.request", "body": b"", "more_body": False})
    start = await communicator.receive_output(5)
    body = await communicator.receive_output(5)
    await communicator.wait(5)
    return start["status"], body["body"]


async def test_a_declared_oversize_body_is_refused_before_it_arrives():
    status, body = await answer("/login", [], {"content-length": str(2 * MIB + 1)})
    assert status == 413
    assert json.loads(body)["code"] == "request.too_large"


async def test_an_undeclared_oversize_body_is_refused_while_it_arrives():
    status, body = await answer("/login", [b"x" * MIB] * 3, {})
    assert status == 413
    assert json.loads(body)["msg"].startswith("The body is larger than")


async def test_a_lying_content_length_does_not_help():
    status, _ = await answer("/login", [b"x" * MIB] * 3, {"content-length": "5"})
    assert status == 413


async def test_a_body_of_exactly_the_limit_reaches_the_application():
    status, _ = await answer("/nothing", [b"x" * MIB] * 2, {"content-length": str(2 * MIB)})
    assert status == 404


def test_bulk_paths_take_more():
    assert body_limit_of("/tasks/submit") == 16 * MIB
    assert body_limit_of("/login") == 2 * MIB


async def test_lifespan_opens_and_closes_the_pool():
    communicator = ApplicationCommunicator(application, {"type": "lifespan"})
    await communicator.send_input({"type": "lifespan.startup"})
    assert await communicator.receive_output(5) == {"type": "lifespan.startup.complete"}
    assert await get_pool().fetch("SELECT 1") == [(1,)]
    await communicator.send_input({"type": "lifespan.shutdown"})
    assert await communicator.receive_output(5) == {"type": "lifespan.shutdown.complete"}
    await communicator.wait(5)
    with pytest.raises(RuntimeError):
        get_pool()


async def test_without_lifespan_the_first_requests_open_one_pool():
    answers = await asyncio.gather(*(answer("/nothing", [], {}) for _ in range(5)))
    assert {status for status, _ in answers} == {404}
    assert await get_pool().fetch("SELECT 1") == [(1,)]


async def test_what_is_loaded_is_left_alone_by_the_garbage_collector_while_it_serves():
    """A full look at it stops the process for 0.1 s and more; bulk submits made many of them."""
    frozen, before = gc.get_freeze_count(), gc.get_threshold()
    await answer("/nothing", [], {})
    assert gc.get_freeze_count() > frozen + 100_000
    assert gc.get_threshold()[0] > 10 * before[0]
    await application._stop()
    assert (gc.get_freeze_count(), gc.get_threshold()) == (0, before)


async def test_sessions_of_the_pool_carry_the_limits_of_the_policy(settings):
    await answer("/nothing", [], {})
    [(statement, lock, idle)] = await get_pool().fetch(
        "SELECT current_setting('statement_timeout'), current_setting('lock_timeout'),"
        " current_setting('idle_in_transaction_session_timeout')"
    )
    assert (statement, lock, idle) == ("15s", "2s", "30s")


async def test_an_unknown_socket_path_is_closed_before_it_is_accepted():
    scope = {"type": "websocket", "path": "/ws/nothing", "headers": [], "query_string": b""}
    communicator = ApplicationCommunicator(application, scope)
    await communicator.send_input({"type": "websocket.connect"})
    assert (await communicator.receive_output(5))["type"] == "websocket.close"


async def test_a_part_that_cannot_start_stops_the_server_and_leaves_nothing_open(settings):
    settings.DATABASE_URL = "nonsense ="
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        sent.append(message)

    with pytest.raises(Exception, match="nonsense"):
        await Runtime(application)({"type": "lifespan"}, receive, send)
    assert sent == []
    with pytest.raises(RuntimeError):
        get_pool()
