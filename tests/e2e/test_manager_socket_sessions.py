"""Sessions on two coordinator processes: a manager that hops, one that waits, two with one name."""

import asyncio
import time
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from mitosis_protocol.enums import DesiredState
from tests.e2e.cluster import Cluster
from tests.e2e.manager_client import Link, Manager, prepared, query
from tests.harness import TestServices
from tests.integration.workers.live_user import LiveUser

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

ANSWER_S = 4.0
# Locks are waited for longer than an answer may take, as a slow statement would be.
POLICY = {"MITOSIS_POLICY": f"socket_answer_s={ANSWER_S},lock_timeout_s=12,statement_timeout_s=15"}
HOPS = 8


@pytest.fixture(scope="module")
def pair(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("sessions")
    with Cluster(root, coordinators=2, environment=POLICY) as running:
        yield running


@pytest.fixture(scope="module")
def user(pair: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(pair)
    yield found
    found.close()


def desired(cluster: Cluster, manager: Manager) -> DesiredState:
    [(code,)] = query(cluster, "SELECT desired_state FROM runners WHERE uuid = %s", manager.uuid)
    return DesiredState.from_code(code)


async def commit(link: Link, attempts: list[int]) -> list[str]:
    lines = [{"task_id": one, "op": "commit", "exit_status": 0} for one in attempts]
    answer = await link.request("report_tasks", reports=lines)
    return [line["answer"] for line in answer["results"]]


async def test_a_manager_that_hops_between_processes_loses_and_doubles_nothing(
    user: LiveUser, pair: Cluster
):
    """Each time it leaves with a claim on its way, and asks the other process what became of it."""
    tag = uuid4().hex
    manager = Manager(user, tag)
    held: list[int] = []
    seen: list[str] = []
    epochs: list[int] = []
    async with manager.connected(pair.urls[0]) as link:
        campaign = await prepared(user, link, tag, 2 * HOPS)
    for hop in range(HOPS):
        claim_id = str(uuid4())
        async with manager.connected(pair.urls[hop % 2]) as link:
            welcome = await link.hello(inventory=held, suite_uuid=campaign.uuid)
            epochs.append(welcome["session_epoch"])
            assert sorted(welcome["held"]["kept"]) == sorted(held)
            assert welcome["engagement"]["suite_uuid"] == campaign.uuid
            await link.send(type="fetch_tasks", request_id=999, max_tasks=2, claim_id=claim_id)
        async with manager.connected(pair.urls[(hop + 1) % 2]) as link:
            fetched = await link.request("fetch_tasks", max_tasks=2, claim_id=claim_id)
            seen += [task["task_uuid"] for task in fetched["tasks"]]
            held += [task["task_id"] for task in fetched["tasks"]]
            # One stays in hand over the next hop.
            assert set(await commit(link, held[:-1])) <= {"ok"}
            held = held[-1:]
    async with manager.connected(pair.urls[0]) as link:
        assert await commit(link, held) == ["ok"]
    assert len(seen) == len(set(seen)) == 2 * HOPS
    assert epochs == sorted(set(epochs))
    rows = query(
        pair,
        "SELECT count(*), max(t.attempt), max(t.failures) FROM archived_tasks t"
        " JOIN task_suites s ON s.id = t.suite_id WHERE s.uuid = %s",
        campaign.uuid,
    )
    assert rows == [(2 * HOPS, 1, 0)]
    assert desired(pair, manager) is DesiredState.ACTIVE


async def test_a_push_finds_the_manager_after_it_has_hopped(user: LiveUser, pair: Cluster):
    tag = uuid4().hex
    manager = Manager(user, tag)
    async with manager.connected(pair.urls[0]) as link:
        campaign = await prepared(user, link, tag, 1)
    async with manager.connected(pair.urls[1]) as link:
        await link.hello(suite_uuid=campaign.uuid)
        body = {"reason": "enough", "cancel_running_tasks": True}
        path = f"/suites/{campaign.uuid}/cancel"
        await asyncio.to_thread(user.call, "POST", path, json=body)
        # By the push, or by the answer to a beat if it came before the socket listened.
        await link.beat("Executing")
        assert (await link.pushed("cancel_suite"))["suite_uuid"] == campaign.uuid


async def test_a_request_that_takes_too_long_is_refused_and_can_be_repeated(
    user: LiveUser, pair: Cluster
):
    """The manager gives up after 30 s; the coordinator says so before, and keeps what it did."""
    tag = uuid4().hex
    manager = Manager(user, tag)
    claim_id = str(uuid4())
    async with manager.connected() as link:
        campaign = await prepared(user, link, tag, 2, max_running=8)
        [(suite_id,)] = query(pair, "SELECT id FROM task_suites WHERE uuid = %s", campaign.uuid)
        with psycopg.connect(pair.database_url, autocommit=True) as blocker:
            key = f"suite.cap/{suite_id}"
            blocker.execute("SELECT pg_advisory_lock(hashtextextended(%s, 1))", [key])
            began = time.monotonic()
            fetching = asyncio.create_task(
                link.request("fetch_tasks", within_s=30, max_tasks=2, claim_id=claim_id)
            )
            while not fetching.done():
                assert (await link.beat("Executing"))["type"] == "heartbeat_ack"
                await asyncio.sleep(0.2)
            refused = await fetching
            assert time.monotonic() - began > ANSWER_S - 0.5
        assert (refused["code"], refused["is_retryable"]) == ("request.timeout", True)
        again: list[dict[str, object]] = []
        async with asyncio.timeout(30):
            while not again:
                answer = await link.request("fetch_tasks", max_tasks=2, claim_id=claim_id)
                again = answer.get("tasks", [])
        assert len({task["task_id"] for task in again}) == 2
        claims = "SELECT count(*) FROM task_attempts WHERE claim_id = %s"
        assert query(pair, claims, claim_id) == [(2,)]
        assert (await link.request("fetch_tasks", max_tasks=2))["tasks"] == []


@pytest.mark.parametrize("second", [0, 1], ids=["same process", "two processes"])
async def test_two_live_agents_with_one_identity_are_taken_out_of_work(
    user: LiveUser, pair: Cluster, second: int
):
    tag = uuid4().hex
    manager = Manager(user, tag)
    codes: list[int] = []

    async def flap(url: str) -> None:
        """A clone comes back whenever the other one has thrown it out."""
        while True:
            async with manager.connected(url) as link:
                code, _ = await link.gone(60)
                codes.append(code)

    async with manager.connected() as link:
        campaign = await prepared(user, link, tag, 1)
    clones = [asyncio.create_task(flap(url)) for url in (pair.urls[0], pair.urls[second])]
    try:
        async with asyncio.timeout(60):
            while desired(pair, manager) is not DesiredState.QUARANTINED:
                assert not any(clone.done() for clone in clones), clones
                await asyncio.sleep(0.2)
    finally:
        for clone in clones:
            clone.cancel()
        await asyncio.gather(*clones, return_exceptions=True)
    assert set(codes) == {4409}
    assert len(codes) >= 5
    async with manager.connected() as link:
        welcome = await link.hello(suite_uuid=campaign.uuid)
        assert welcome["desired_state"] == DesiredState.QUARANTINED.value
        assert (await link.request("fetch_tasks", max_tasks=1))["tasks"] == []
    alarms = [pair.log(name) for name in ("web0", "web1")]
    assert any("manager.clones_suspected" in log for log in alarms)
    audited = query(
        pair,
        "SELECT count(*) FROM audit_log WHERE action = 'manager.wish' AND object = %s",
        manager.uuid,
    )
    assert audited[0][0] >= 1


async def test_a_suite_that_fits_no_frame_is_refused_when_it_is_made(user: LiveUser):
    hook = {"args": ["true"], "timeout": "1m", "envs": {"A": "x" * 100_000}}
    body = {
        "group_name": user.name,
        "worker_schedule": {"worker_count": 1},
        "env_preparation": hook,
        "env_cleanup": hook,
    }
    answer = await asyncio.to_thread(user.http.post, "/suites", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "request.invalid"
    assert "env_preparation and env_cleanup" in answer.json()["msg"]
