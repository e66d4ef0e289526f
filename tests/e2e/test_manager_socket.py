"""The manager socket of a running coordinator, over real sockets."""

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.e2e.cluster import Cluster
from tests.e2e.manager_client import Campaign, Manager, take_up
from tests.integration.workers.live_user import LiveUser

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(cluster)
    yield found
    found.close()


async def test_a_suite_runs_from_assignment_to_completion(user: LiveUser):
    tag = uuid4().hex
    campaign = Campaign(user, tag, linger_seconds=0, settle_seconds=0)
    tasks = {campaign.submit("echo", str(n)) for n in range(3)}
    async with Manager(user, tag).connected() as link:
        welcome = await link.hello()
        assert welcome["type"] == "welcome"
        assert welcome["protocol_version"] == 1
        assignment_id = await take_up(link, campaign)
        one = await link.request("fetch_task", worker_local_id=0)
        assert one["task"]["task_uuid"] in tasks
        assert one["task"]["spec"]["args"][0] == "echo"
        rest = await link.request("fetch_tasks", max_tasks=8)
        given = [one["task"], *rest["tasks"]]
        assert {task["task_uuid"] for task in given} == tasks
        done = await link.request("report_task", task_id=given[0]["task_id"],
                                  op={"Commit": {"exit_status": 0}})  # fmt: skip
        assert (done["success"], done["action"]) == (True, "end")
        lines = [{"task_id": t["task_id"], "op": "commit", "exit_status": 0} for t in given[1:]]
        answer = await link.request("report_tasks", reports=lines)
        assert [line["answer"] for line in answer["results"]] == ["ok", "ok"]
        again = await link.request("report_tasks", reports=lines)
        assert [line["answer"] for line in again["results"]] == ["ok_duplicate"] * 2
        assert {user.task(uuid)["outcome"] for uuid in tasks} == {"succeeded"}
        answer = await link.request("suite_completed", suite_uuid=campaign.uuid, tasks_completed=3,
                                    tasks_failed=0, assignment_id=assignment_id)  # fmt: skip
        assert answer["success"]
        assert (await link.beat("Idle"))["engagement"] is None


@pytest.mark.parametrize("header", [None, "Bearer nonsense", "Basic YTpi"])
async def test_nobody_unknown_is_accepted(cluster: Cluster, header: str | None):
    headers = {} if header is None else {"Authorization": header}
    url = cluster.url.replace("http", "ws", 1) + "/ws/managers"
    with pytest.raises(InvalidStatus) as refused:
        async with connect(url, additional_headers=headers, proxy=None):
            pass
    assert refused.value.response.status_code == 401


async def test_a_users_token_is_no_managers_token(user: LiveUser, cluster: Cluster):
    headers = {"Authorization": user.http.headers["Authorization"]}
    url = cluster.url.replace("http", "ws", 1) + "/ws/managers"
    with pytest.raises(InvalidStatus) as refused:
        async with connect(url, additional_headers=headers, proxy=None):
            pass
    assert refused.value.response.status_code == 401


async def test_the_newest_session_wins(user: LiveUser):
    manager = Manager(user)
    async with manager.connected() as old, manager.connected() as new:
        assert await old.gone() == (4409, "superseded")
        assert (await new.beat())["type"] == "heartbeat_ack"


async def test_a_revoked_manager_is_closed_within_five_seconds(user: LiveUser):
    manager = Manager(user)
    async with manager.connected() as link:
        await link.beat()
        started = asyncio.get_running_loop().time()
        answer = await asyncio.to_thread(user.http.post, f"/managers/{manager.uuid}/revoke")
        assert answer.status_code in {200, 204}
        code, _ = await link.gone(6)
        assert code == 4401
        assert asyncio.get_running_loop().time() - started < 5
