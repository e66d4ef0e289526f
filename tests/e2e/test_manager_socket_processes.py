"""The manager socket on two coordinator processes: order, fences, hostility, pushes."""

import asyncio
import time
from collections.abc import Iterator
from uuid import UUID, uuid4

import psycopg
import pytest
from channels.layers import channel_layers

from core.push import push_broadcast, push_to_manager
from mitosis_protocol.to_manager import ConfigUpdate, Pause
from tests.e2e.cluster import Cluster
from tests.e2e.manager_client import Campaign, Manager, prepared, query
from tests.harness import TestServices
from tests.integration.workers.live_user import LiveUser

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def pair(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("pair"), coordinators=2) as running:
        yield running


@pytest.fixture(scope="module")
def user(pair: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(pair)
    yield found
    found.close()


@pytest.fixture
def _own_layer() -> Iterator[None]:
    """Each test has an event loop of its own, so each gets a layer of its own."""
    channel_layers.backends.clear()
    yield
    channel_layers.backends.clear()


async def test_answers_come_in_any_order_and_heartbeats_never_wait(user: LiveUser, pair: Cluster):
    tag = uuid4().hex
    async with Manager(user, tag).connected() as link:
        campaign = await prepared(user, link, tag, 2, max_running=8)
        [(suite_id,)] = query(pair, "SELECT id FROM task_suites WHERE uuid = %s", campaign.uuid)
        with psycopg.connect(pair.database_url, autocommit=True) as blocker:
            # Claims of a capped suite take turns; whoever holds the turn makes them slow.
            key = f"suite.cap/{suite_id}"
            blocker.execute("SELECT pg_advisory_lock(hashtextextended(%s, 1))", [key])
            slow = link.ask()
            await link.send(type="fetch_tasks", request_id=slow, max_tasks=2)
            waits = []
            for _ in range(5):
                started = time.monotonic()
                await link.beat("Executing")
                waits.append(time.monotonic() - started)
            unknown = await link.request("return_tasks", task_ids=[1])
            assert unknown["results"][0]["answer"] in {"invalid", "forbidden"}
            assert link._waiting[slow].empty()
        answer = await link.answer(slow)
        assert len(answer["tasks"]) == 2
        assert max(waits) < 0.5


async def test_a_lost_answer_is_returned_again_by_its_claim_id(user: LiveUser, pair: Cluster):
    tag = uuid4().hex
    manager = Manager(user, tag)
    claim_id = str(uuid4())
    async with manager.connected(pair.urls[0]) as link:
        await prepared(user, link, tag, 3)
        first = await link.request("fetch_tasks", max_tasks=2, claim_id=claim_id)
    async with manager.connected(pair.urls[1]) as link:
        await link.hello()
        again = await link.request("fetch_tasks", max_tasks=2, claim_id=claim_id)
    held = [task["task_id"] for task in first["tasks"]]
    assert sorted(task["task_id"] for task in again["tasks"]) == sorted(held)
    assert all(task["is_repeat"] for task in again["tasks"])


async def test_a_takeover_by_another_process_closes_the_older_session(
    user: LiveUser, pair: Cluster
):
    manager = Manager(user)
    async with manager.connected(pair.urls[0]) as old:
        await old.beat()
        async with manager.connected(pair.urls[1]) as new:
            assert await old.gone(5) == (4409, "superseded")
            assert (await new.beat())["type"] == "heartbeat_ack"
        rows = query(pair, "SELECT conn_state FROM runners WHERE uuid = %s", manager.uuid)
        assert rows[0][0] in {0, 1}


@pytest.mark.usefixtures("_own_layer")
async def test_a_push_reaches_its_manager_on_whichever_process(user: LiveUser, pair: Cluster):
    one, two = Manager(user), Manager(user)
    async with one.connected(pair.urls[0]) as first, two.connected(pair.urls[1]) as second:
        await asyncio.gather(first.beat(), second.beat())
        await asyncio.sleep(0.5)  # both have joined their groups by then
        suite = uuid4()
        await push_to_manager(UUID(two.uuid), Pause(suite_uuid=suite))
        assert (await second.pushed("pause"))["suite_uuid"] == str(suite)
        await push_broadcast(ConfigUpdate(heartbeat_interval="30s", version=7))
        assert (await first.pushed("config_update"))["version"] == 7
        assert (await second.pushed("config_update"))["version"] == 7
        assert not [frame for frame in first.pushes if frame["type"] == "pause"]


async def test_a_cancel_reaches_the_manager_that_holds_the_task(user: LiveUser, pair: Cluster):
    tag = uuid4().hex
    async with Manager(user, tag).connected(pair.urls[1]) as link:
        campaign = await prepared(user, link, tag, 1)
        [task] = (await link.request("fetch_tasks", max_tasks=1))["tasks"]
        await link.request("report_tasks", reports=[{"task_id": task["task_id"], "op": "start"}])
        path = f"/suites/{campaign.uuid}/cancel"
        body = {"reason": "enough", "cancel_running_tasks": True}
        answer = await asyncio.to_thread(user.http.post, path, json=body)
        assert answer.status_code == 200, answer.text
        assert (await link.pushed("cancel_suite"))["suite_uuid"] == campaign.uuid
        told = await link.beat("Executing", inventory=[task["task_id"]])
        assert told["held"]["cancel"] == [task["task_id"]]


async def test_a_client_of_the_rfc_alone_is_served(user: LiveUser, pair: Cluster):
    """No hello, no request id on heartbeats, single messages only."""
    tag = uuid4().hex
    campaign = Campaign(user, tag)
    campaign.submit("true")
    manager = Manager(user, tag)
    async with manager.connected() as link:
        deadline = time.monotonic() + 30
        while not link.pushes:
            await link.send(type="heartbeat", manager_uuid=manager.uuid, state="Idle", metrics={})
            await asyncio.sleep(0.3)
            assert time.monotonic() < deadline
        assigned = link.pushes[0]
        assert assigned["type"] == "suite_assigned"
        assert assigned["suite_spec"]["worker_schedule"]["worker_count"] == 2
        for state in ("Preparing", "Executing"):
            await link.send(type="heartbeat", manager_uuid=manager.uuid, state=state, metrics={})
        task = None
        while task is None:
            task = (await link.request("fetch_task", worker_local_id=1))["task"]
            assert time.monotonic() < deadline
        for op in ({"Finish": {"exit_code": 3}}, "Commit"):
            answer = await link.request("report_task", task_id=task["task_id"], op=op)
            assert answer["success"], answer
        info = user.task(task["task_uuid"])
        assert (info["outcome"], info["result"]["exit_status"]) == ("failed", 3 << 8)
        await link.send(type="suite_completed", suite_uuid=campaign.uuid, tasks_completed=0,
                        tasks_failed=1)  # fmt: skip
        while query(pair, "SELECT 1 FROM suite_assignments a JOIN runners r ON r.id = a.manager_id"
                    " WHERE r.uuid = %s AND a.released_at IS NULL", manager.uuid):  # fmt: skip
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        assert {frame["type"] for frame in link.pushes} <= {"suite_assigned", "tasks_ready"}


@pytest.fixture(autouse=True)
def _nobody_died(pair: Cluster) -> Iterator[None]:
    yield
    assert pair.dead() == []
