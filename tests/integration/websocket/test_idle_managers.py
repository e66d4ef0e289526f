"""A manager that becomes idle is given waiting work at once; no sweep runs in these tests."""

from typing import Any
from uuid import uuid4

import pytest

from core.locks import try_lock
from core.pg import get_pool
from managers.services.registration import RegisteredManager
from managers.services.scheduler import LOCK
from managers.services.session_threads import in_thread
from mitosis_protocol.enums import ManagerState
from suites.models import TaskSuite
from tests.integration.managers.fleet import registered
from tests.integration.suites.campaign import make_suite, make_user, submit
from tests.integration.websocket.socket_world import FakeServer

pytestmark = [
    pytest.mark.usefixtures("_process"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(120),
]

PATIENCE_S = 30.0


def waiting_suite() -> tuple[RegisteredManager, TaskSuite]:
    user = make_user(f"ada{uuid4().hex[:8]}")
    manager, suite = registered(user), make_suite(user)
    submit(suite, 3)
    return manager, suite


async def connected(manager: RegisteredManager) -> FakeServer:
    server = FakeServer({"authorization": f"Bearer {manager.tokens.token}"})
    assert (await server.next(PATIENCE_S))["type"] == "websocket.accept"
    return server


async def assigned(server: FakeServer) -> dict[str, Any]:
    while (frame := await server.answer(PATIENCE_S))["type"] != "suite_assigned":
        pass
    return frame


async def hears_of(server: FakeServer, suite: TaskSuite) -> bool:
    return bool((await assigned(server))["suite_uuid"] == str(suite.uuid))


async def leave(server: FakeServer) -> None:
    server.leave()
    await server.task


async def test_hello_starts_waiting_work() -> None:
    manager, suite = await in_thread(waiting_suite)
    server = await connected(manager)
    server.give(type="hello", request_id=1, process_id=str(uuid4()))
    assert await hears_of(server, suite)
    await leave(server)


async def test_a_suite_that_ends_while_a_pass_is_under_way_makes_room_at_once() -> None:
    manager, suite = await in_thread(waiting_suite)
    server = await connected(manager)
    uuid = str(manager.runner.uuid)
    idle = {"manager_uuid": uuid, "state": ManagerState.IDLE.value, "metrics": {}}
    server.give(type="heartbeat", **idle)
    first = await assigned(server)
    # While somebody's pass is under way, which may have looked at the host before it was free.
    async with get_pool().transaction() as conn:
        assert await try_lock(conn, LOCK)
        server.give(
            type="suite_completed", request_id=2, suite_uuid=str(suite.uuid),
            assignment_id=first["assignment_id"], tasks_completed=0, tasks_failed=0,
        )  # fmt: skip
        while (await server.answer(PATIENCE_S))["type"] != "suite_report_ack":
            pass
    again = await assigned(server)
    assert again["assignment_id"] > first["assignment_id"]
    await leave(server)


async def test_the_first_idle_heartbeat_starts_waiting_work() -> None:
    manager, suite = await in_thread(waiting_suite)
    server = await connected(manager)
    uuid = str(manager.runner.uuid)
    # As after a restart: hello alone does not say that the host is free.
    for state in (ManagerState.CLEANUP, ManagerState.IDLE):
        server.give(type="heartbeat", manager_uuid=uuid, state=state.value, metrics={})
    assert await hears_of(server, suite)
    await leave(server)
