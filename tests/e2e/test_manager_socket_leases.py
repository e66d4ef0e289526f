"""Leases of seconds: a silent manager loses its work, a returning one gets it back."""

import asyncio
import time
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.manager_client import Campaign, Manager, take_up
from tests.harness import TestServices
from tests.integration.workers.live_user import SHORT_LEASE, LiveUser

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def hasty(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("hasty"), environment=SHORT_LEASE) as running:
        yield running


@pytest.fixture(scope="module")
def user(hasty: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(hasty)
    yield found
    found.close()


def holder_of(cluster: Cluster, task_uuid: str) -> tuple[object, ...]:
    with psycopg.connect(cluster.database_url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT state, runner_id IS NULL, attempt, failures FROM active_tasks WHERE uuid = %s",
            [task_uuid],
        ).fetchone()
    assert row is not None
    return row


async def test_a_disconnect_reclaims_nothing_and_the_lease_does(user: LiveUser, hasty: Cluster):
    """The attempt is lost, not claimed by anybody else, and adopted when its manager returns."""
    tag = uuid4().hex
    campaign = Campaign(user, tag)
    campaign.submit("sleep", "1")
    manager = Manager(user, tag)
    async with manager.connected() as link:
        welcome = await link.hello()
        assert welcome["lease"] == "3s"
        assert welcome["heartbeat_interval"] == "750ms"
        await take_up(link, campaign)
        [task] = (await link.request("fetch_tasks", max_tasks=1))["tasks"]
        start = [{"task_id": task["task_id"], "op": "start"}]
        await link.request("report_tasks", reports=start)
    assert holder_of(hasty, task["task_uuid"]) == (3, False, 1, 0)
    deadline = time.monotonic() + 30
    while holder_of(hasty, task["task_uuid"])[1] is False:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    assert holder_of(hasty, task["task_uuid"]) == (1, True, 1, 1)
    async with manager.connected() as link:
        welcome = await link.hello(inventory=[task["task_id"]], suite_uuid=campaign.uuid)
        assert welcome["held"]["adopted"] == [task["task_id"]]
        assert welcome["engagement"]["suite_uuid"] == campaign.uuid
        assert holder_of(hasty, task["task_uuid"])[1:] == (False, 1, 0)
        line = {"task_id": task["task_id"], "op": "commit", "exit_status": 0}
        answer = await link.request("report_tasks", reports=[line])
        assert answer["results"][0]["answer"] == "ok"
    assert user.task(task["task_uuid"])["outcome"] == "succeeded"


async def test_a_clean_start_gives_back_what_the_last_process_held(user: LiveUser, hasty: Cluster):
    tag = uuid4().hex
    campaign = Campaign(user, tag)
    campaign.submit("true")
    manager = Manager(user, tag)
    async with manager.connected() as link:
        await take_up(link, campaign)
        [task] = (await link.request("fetch_tasks", max_tasks=1))["tasks"]
    async with manager.connected() as link:
        welcome = await link.hello(is_clean=True)
        assert welcome["held"]["missing"] == [task["task_id"]]
        [again] = (await link.request("fetch_tasks", max_tasks=1))["tasks"]
        assert (again["task_uuid"], again["attempt"]) == (task["task_uuid"], 2)
        late = {"task_id": task["task_id"], "op": "commit", "exit_status": 0}
        answer = await link.request("report_tasks", reports=[late])
        assert answer["results"][0]["answer"] == "stale_attempt"


async def test_renewing_the_access_token_ends_the_socket_of_the_older_one(user: LiveUser):
    manager = Manager(user)
    async with manager.connected() as link:
        await link.beat()
        path = f"/managers/{manager.uuid}/refresh-token"
        headers = {"Authorization": f"Bearer {manager.token}"}
        answer = await asyncio.to_thread(user.http.post, path, json={}, headers=headers)
        assert answer.status_code == 200, answer.text
        code, _ = await link.gone(6)
        assert code == 4401
        manager.token = answer.json()["token"]
    async with manager.connected() as link:
        assert (await link.beat())["type"] == "heartbeat_ack"
