"""What a manager's words leave in the database, and what its silence does; on real sockets."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from mitosis_protocol.enums import ManagerState
from tests.e2e.cluster import Cluster
from tests.e2e.manager_client import Campaign, Link, Manager, prepared, query, take_up
from tests.harness import TestServices
from tests.integration.workers.live_user import SHORT_LEASE, LiveUser

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

NODE = (
    "SELECT m.state, m.last_heartbeat, r.conn_state FROM node_managers m"
    " JOIN runners r ON r.id = m.runner_id WHERE r.uuid = %s"
)
ENGAGED = (
    "SELECT count(*) FROM suite_assignments a JOIN runners r ON r.id = a.manager_id"
    " WHERE r.uuid = %s AND a.released_at IS NULL"
)


@pytest.fixture(scope="module")
def hasty(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("checklist"), environment=SHORT_LEASE) as running:
        yield running


@pytest.fixture(scope="module")
def user(hasty: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(hasty)
    yield found
    found.close()


def node(cluster: Cluster, manager: Manager) -> tuple[ManagerState, Any, int]:
    [(state, seen, connected)] = query(cluster, NODE, manager.uuid)
    return ManagerState.from_code(state), seen, connected


async def until(what: str, check: Any, within_s: float = 40) -> None:
    deadline = time.monotonic() + within_s
    while not check():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.1)


async def beat_until(link: Link, state: str, what: str, check: Any) -> None:
    """Like `until`, with the lease kept alive."""
    deadline = time.monotonic() + 40
    while not check():
        assert time.monotonic() < deadline, what
        await link.beat(state)
        await asyncio.sleep(0.3)


async def test_a_connection_and_its_beats_are_seen_in_the_database(user: LiveUser, hasty: Cluster):
    manager = Manager(user)
    async with manager.connected() as link:
        await link.beat("Idle")
        state, first, connected = node(hasty, manager)
        assert (state, connected) == (ManagerState.IDLE, 1)
        await asyncio.sleep(0.05)
        await link.beat("Cleanup")
        state, second, _ = node(hasty, manager)
        assert state is ManagerState.CLEANUP
        assert second > first
    await until("disconnected", lambda: node(hasty, manager)[2] == 0)


async def test_a_suite_is_complete_and_its_manager_idle_when_all_is_said(
    user: LiveUser, hasty: Cluster
):
    tag = uuid4().hex
    manager = Manager(user, tag)
    async with manager.connected() as link:
        campaign = await prepared(user, link, tag, 2, linger_seconds=0, settle_seconds=0)
        tasks = (await link.request("fetch_tasks", max_tasks=2))["tasks"]
        for task in tasks:
            done = {"Commit": {"exit_status": 0}}
            answer = await link.request("report_task", task_id=task["task_id"], op=done)
            assert answer["success"]
        assert (await link.request("fetch_task", worker_local_id=0))["task"] is None
        answer = await link.request("suite_completed", suite_uuid=campaign.uuid,
                                    tasks_completed=2, tasks_failed=0)  # fmt: skip
        assert answer["success"]
        assert query(hasty, ENGAGED, manager.uuid) == [(0,)]
        path = f"/suites/{campaign.uuid}"
        await beat_until(link, "Idle", "suite complete",
                         lambda: user.call("GET", path)["state"] == "Complete")  # fmt: skip
        await link.beat("Idle")
        assert node(hasty, manager)[0] is ManagerState.IDLE


async def test_a_reported_death_is_written_down_and_an_abort_excludes_the_manager(
    user: LiveUser, hasty: Cluster
):
    tag = uuid4().hex
    async with Manager(user, tag).connected() as link:
        await prepared(user, link, tag, 1)
        [task] = (await link.request("fetch_tasks", max_tasks=1))["tasks"]
        await link.request("report_tasks", reports=[{"task_id": task["task_id"], "op": "start"}])
        answer = await link.request(
            "report_failure", task_uuid=task["task_uuid"], failure_count=1,
            error_message="SIGSEGV in step 3", worker_local_id=5, signal=11,
        )  # fmt: skip
        assert answer["success"]
        rows = query(
            hasty,
            "SELECT failure_count, error_messages, worker_local_id FROM task_execution_failures"
            " WHERE task_uuid = %s",
            task["task_uuid"],
        )
        assert rows == [(1, ["SIGSEGV in step 3"], 5)]
        answer = await link.request("abort_task", task_uuid=task["task_uuid"], reason="enough")
        assert answer["success"]
        assert (await link.request("fetch_tasks", max_tasks=1))["tasks"] == []


async def test_a_silent_manager_loses_its_suite_and_its_socket_and_comes_back_for_both(
    user: LiveUser, hasty: Cluster
):
    """Its socket stays open all the time: what counts is the lease, not the connection."""
    tag = uuid4().hex
    manager = Manager(user, tag)
    async with manager.connected() as link:
        campaign = Campaign(user, tag)
        uuid = campaign.submit("true")
        await take_up(link, campaign)
        [task] = (await link.request("fetch_tasks", max_tasks=1))["tasks"]
        assert await link.gone(40) == (4409, "lease lost")
        assert (await link.pushed("error"))["code"] == "session.lease_lost"
        await until("offline", lambda: node(hasty, manager)[0] is ManagerState.OFFLINE)
        await until("not engaged", lambda: query(hasty, ENGAGED, manager.uuid) == [(0,)])
    free = "SELECT count(*) FROM active_tasks WHERE uuid = %s AND runner_id IS NULL"
    await until("task is free", lambda: query(hasty, free, uuid) == [(1,)])
    async with manager.connected() as link:
        welcome = await link.hello(is_clean=True)
        assert welcome["held"]["kept"] == []
        await take_up(link, campaign)
        [again] = (await link.request("fetch_tasks", max_tasks=1))["tasks"]
        assert (again["task_uuid"], again["attempt"]) == (task["task_uuid"], 2)
