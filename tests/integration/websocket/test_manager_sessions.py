"""One session after the other: limits, order, ends. The real routing, no network."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
import time_machine
from django.conf import settings
from django.db.models.functions import Now
from pytest_django import Settings

from core.errors import DatabaseUnavailable
from managers.services.registration import RegisteredManager
from managers.services.session_threads import in_thread
from mitosis_protocol.enums import ConnState, DesiredState
from mitosis_protocol.from_manager import FetchTask, ReturnTasks
from runners.models import Runner, RunnerLease
from tests.integration.websocket.socket_world import FakeServer
from websocket import inbound
from websocket.presence import PRESENCE

pytestmark = [pytest.mark.usefixtures("_process"), pytest.mark.django_db(transaction=True)]


def bearer(manager: RegisteredManager) -> dict[str, str]:
    return {"authorization": f"Bearer {manager.tokens.token}"}


async def accepted(manager: RegisteredManager) -> FakeServer:
    server = FakeServer(bearer(manager))
    assert (await server.next())["type"] == "websocket.accept"
    return server


async def state_of(manager: RegisteredManager) -> ConnState:
    row = await in_thread(Runner.objects.get, pk=manager.runner.pk)
    return row.conn_state


def beat(manager: RegisteredManager, **more: Any) -> dict[str, Any]:
    uuid = str(manager.runner.uuid)
    return {"type": "heartbeat", "manager_uuid": uuid, "state": "Idle", "metrics": {}, **more}


@pytest.mark.parametrize("denial", [True, False])
async def test_an_unknown_caller_is_refused_before_the_accept(denial: bool):
    server = FakeServer({"authorization": "Bearer x"}, denial=denial)
    first = await server.next()
    if denial:
        assert (first["type"], first["status"]) == ("websocket.http.response.start", 401)
    else:
        assert first["type"] == "websocket.close"
    await server.task


async def test_a_revoked_token_is_refused_before_the_accept(manager: RegisteredManager):
    await in_thread(Runner.objects.filter(pk=manager.runner.pk).update, token_generation=9)
    server = FakeServer(bearer(manager))
    assert (await server.next())["status"] == 401
    await server.task


async def test_the_connection_state_follows_the_socket(manager: RegisteredManager):
    server = await accepted(manager)
    assert await state_of(manager) is ConnState.CONNECTED
    server.leave()
    await server.task
    assert await state_of(manager) is ConnState.DISCONNECTED


async def test_the_end_of_an_older_session_leaves_the_newer_one_alone(manager: RegisteredManager):
    old = await accepted(manager)
    new = await accepted(manager)
    assert await old.closed() == (4409, "superseded")
    assert await state_of(manager) is ConnState.CONNECTED
    new.give(**beat(manager, request_id=1))
    assert (await new.answer())["type"] == "heartbeat_ack"
    new.leave()
    await new.task


async def test_requests_beyond_the_limit_are_refused_and_beats_are_not(
    manager: RegisteredManager, monkeypatch: pytest.MonkeyPatch
):
    gate = asyncio.Event()

    async def stuck(peer: object, message: ReturnTasks) -> list[Any]:
        await gate.wait()
        return []

    handlers = {**inbound.HANDLERS, ReturnTasks: stuck}
    monkeypatch.setattr("websocket.session.HANDLERS", handlers)
    server = await accepted(manager)
    limit = settings.MITOSIS.socket_in_flight
    for n in range(limit + 1):
        server.give(type="return_tasks", request_id=n, task_ids=[1])
    refused = await server.answer()
    assert (refused["code"], refused["request_id"]) == ("session.too_many_in_flight", limit)
    assert refused["is_retryable"]
    server.give(**beat(manager, request_id=500))
    assert (await server.answer())["request_id"] == 500
    gate.set()
    server.leave()
    await server.task


async def test_a_bug_in_a_handler_costs_one_request(
    manager: RegisteredManager, monkeypatch: pytest.MonkeyPatch
):
    async def broken(peer: object, message: FetchTask) -> list[Any]:
        raise ZeroDivisionError

    async def away(peer: object, message: ReturnTasks) -> list[Any]:
        raise DatabaseUnavailable

    handlers = {**inbound.HANDLERS, FetchTask: broken, ReturnTasks: away}
    monkeypatch.setattr("websocket.session.HANDLERS", handlers)
    server = await accepted(manager)
    server.give(type="fetch_task", request_id=1, worker_local_id=0)
    assert (await server.answer())["code"] == "internal"
    server.give(type="return_tasks", request_id=2, task_ids=[1])
    answer = await server.answer()
    assert (answer["code"], answer["is_retryable"]) == ("dependency.database", True)
    server.give(**beat(manager, request_id=3))
    assert (await server.answer())["type"] == "heartbeat_ack"
    server.leave()
    await server.task


async def test_a_peer_that_does_not_read_gets_no_more_and_is_closed(
    manager: RegisteredManager, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("websocket.connection.STALL_S", 0.3)
    monkeypatch.setattr("websocket.connection.CLOSE_TIMEOUT_S", 0.3)
    server = await accepted(manager)
    server.readable.clear()
    for _ in range(400):
        server.give(type="nope")
    await asyncio.wait_for(server.task, 10)
    assert server.out.empty()


async def test_an_oversize_frame_is_not_even_decoded(manager: RegisteredManager):
    server = await accepted(manager)
    server.give_text('"' + "\u00e9" * 140_000 + '"')
    assert (await server.closed())[0] == 4413


async def test_too_many_frames_end_the_session(manager: RegisteredManager):
    server = await accepted(manager)
    for _ in range(settings.MITOSIS.socket_frames_burst + 500):
        server.give(type="nope")
    assert await server.closed() == (4429, "too many frames")


async def test_whoever_flooded_returns_with_the_bucket_it_emptied(manager: RegisteredManager):
    server = await accepted(manager)
    for _ in range(settings.MITOSIS.socket_frames_burst + 500):
        server.give(type="nope")
    assert (await server.closed())[0] == 4429
    again = await accepted(manager)
    for _ in range(settings.MITOSIS.socket_frames_burst - 100):
        again.give(type="nope")
    assert (await again.closed())[0] == 4429


async def test_a_request_that_hangs_is_refused_and_frees_its_place(
    manager: RegisteredManager, monkeypatch: pytest.MonkeyPatch, settings: Settings
):
    settings.MITOSIS = replace(settings.MITOSIS, socket_answer_s=0.3, socket_in_flight=1)

    async def stuck(peer: object, message: ReturnTasks) -> list[Any]:
        await asyncio.Event().wait()
        return []

    handlers = {**inbound.HANDLERS, ReturnTasks: stuck}
    monkeypatch.setattr("websocket.session.HANDLERS", handlers)
    server = await accepted(manager)
    for n in (1, 2):
        server.give(type="return_tasks", request_id=n, task_ids=[1])
        answer = await server.answer()
        assert (answer["code"], answer["request_id"]) == ("request.timeout", n)
        assert answer["is_retryable"]
    server.leave()
    await server.task


async def test_a_takeover_is_counted_once_however_long_the_old_session_takes_to_end(
    manager: RegisteredManager, monkeypatch: pytest.MonkeyPatch
):
    """A peer that vanished does not read its goodbye; that makes it no clone."""
    counted: list[object] = []
    monkeypatch.setattr(PRESENCE, "_look_for_clones", counted.append)
    server = await accepted(manager)
    server.readable.clear()
    update = Runner.objects.filter(pk=manager.runner.pk).update
    await in_thread(update, session_epoch=7)  # as another process does it
    for _ in range(3):
        await PRESENCE.look()
    assert len(counted) == 1
    server.readable.set()
    assert (await server.closed())[0] == 4409


@pytest.mark.parametrize(
    ("fenced", "code", "end"),
    [
        ({"conn_state": ConnState.LOST}, "session.lease_lost", (4409, "lease lost")),
        ({"conn_state": ConnState.CONNECTED}, "session.superseded", (4409, "superseded")),
        (
            {"conn_state": ConnState.LOST, "revoked_at": Now()},
            "auth.revoked_token",
            (4401, "token no longer valid"),
        ),
    ],
)
async def test_a_session_that_was_fenced_while_we_stood_still_ends_for_the_true_reason(
    manager: RegisteredManager, fenced: dict[str, Any], code: str, end: tuple[int, str]
):
    """The agent leaves for good when it hears of a newer session."""
    server = await accepted(manager)
    for rows in (
        RunnerLease.objects.filter(runner=manager.runner),
        Runner.objects.filter(pk=manager.runner.pk),
    ):
        more = fenced if rows.model is Runner else {}
        await in_thread(rows.update, session_epoch=7, **more)
    server.give(**beat(manager, request_id=1))
    answer = await server.answer()
    assert (answer["code"], answer["request_id"]) == (code, 1)
    assert await server.closed() == end


async def _greeted(manager: RegisteredManager, process_id: UUID) -> FakeServer:
    server = await accepted(manager)
    server.give(type="hello", request_id=1, process_id=str(process_id))
    assert (await server.answer())["type"] == "welcome"
    return server


async def _left(servers: list[FakeServer]) -> None:
    for server in servers:
        server.leave()
        await server.task


async def _wish(manager: RegisteredManager) -> DesiredState:
    return (await in_thread(Runner.objects.get, pk=manager.runner.pk)).desired_state


async def test_an_agent_that_replaces_its_own_dead_connections_is_no_clone(
    manager: RegisteredManager, settings: Settings
):
    process = uuid4()
    servers = [
        await _greeted(manager, process)
        for _ in range(2 * settings.MITOSIS.supersedes_per_minute + 2)
    ]
    assert [(await server.closed())[0] for server in servers[:-1]] == [4409] * (len(servers) - 1)
    await asyncio.gather(*PRESENCE._background)
    assert await _wish(manager) is DesiredState.ACTIVE
    await _left(servers)


async def test_agents_that_replace_each_other_are_clones(
    manager: RegisteredManager, settings: Settings
):
    both = (uuid4(), uuid4())
    servers = [
        await _greeted(manager, both[n % 2])
        for n in range(settings.MITOSIS.supersedes_per_minute + 2)
    ]
    async with asyncio.timeout(10):
        while (wish := await _wish(manager)) is DesiredState.ACTIVE:
            await asyncio.gather(*PRESENCE._background)
    assert wish is DesiredState.QUARANTINED
    await _left(servers)


async def test_whoever_comes_back_from_a_session_that_we_have_closed_is_no_clone(
    manager: RegisteredManager, monkeypatch: pytest.MonkeyPatch
):
    counted: list[object] = []
    monkeypatch.setattr(PRESENCE, "_look_for_clones", counted.append)
    server = await accepted(manager)
    server.readable.clear()
    with time_machine.travel(manager.tokens.expires_at, tick=True):
        await PRESENCE.look()
    again = await accepted(manager)
    assert counted == []
    server.readable.set()
    assert await server.closed() == (4401, "token expired")
    await _left([server, again])


async def test_an_expired_token_ends_the_session(manager: RegisteredManager):
    server = await accepted(manager)
    with time_machine.travel(manager.tokens.expires_at, tick=True):
        assert await server.closed() == (4401, "token expired")


async def test_a_protocol_of_the_past_is_refused(manager: RegisteredManager):
    server = await accepted(manager)
    process = "6f0c9f5e-6f0a-4c9d-9d2b-1b7f2a0c4e11"
    server.give(type="hello", request_id=1, process_id=process, protocol_version=0)
    assert (await server.answer())["code"] == "protocol.version_mismatch"
    code, reason = await server.closed()
    assert code == 4400
    assert "version" in reason


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "Offline"},
        {"metrics": {"families": {str(n): {"x": "y" * 3000} for n in range(32)}}},
    ],
)
async def test_a_heartbeat_that_cannot_be_kept_is_refused_alone(
    manager: RegisteredManager, wrong: dict[str, Any]
):
    server = await accepted(manager)
    server.give(**beat(manager, request_id=1) | wrong)
    server.give(**beat(manager, request_id=2))
    answers = {frame["request_id"]: frame for frame in [await server.answer() for _ in range(2)]}
    assert answers[1]["code"] == "request.invalid"
    assert answers[2]["type"] == "heartbeat_ack"
    server.leave()
    await server.task


async def test_managers_connect_and_work_while_redis_is_away(
    manager: RegisteredManager, monkeypatch: pytest.MonkeyPatch
):
    def away() -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr("websocket.pushes.get_channel_layer", away)
    server = await accepted(manager)
    server.give(**beat(manager, request_id=1))
    assert (await server.answer())["type"] == "heartbeat_ack"
    server.leave()
    await server.task
