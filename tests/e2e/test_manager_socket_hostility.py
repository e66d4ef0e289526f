"""Managers that lie, flood, mumble or do not listen: nobody else notices."""

import asyncio
import json
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import pytest
from websockets.exceptions import ConnectionClosed

from mitosis_protocol.limits import MAX_FRAME_BYTES
from tests.e2e.cluster import Cluster
from tests.e2e.manager_client import Manager, prepared, query
from tests.figures import Figure
from tests.integration.workers.live_user import LiveUser

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(cluster)
    yield found
    found.close()


async def test_a_manager_speaks_in_its_own_name_only(user: LiveUser, cluster: Cluster):
    victim, liar = Manager(user), Manager(user)
    before = query(cluster, "SELECT last_heartbeat FROM node_managers m JOIN runners r"
                   " ON r.id = m.runner_id WHERE r.uuid = %s", victim.uuid)  # fmt: skip
    async with liar.connected() as link:
        answer = await link.beat("Executing", manager_uuid=victim.uuid)
        assert (answer["type"], answer["code"]) == ("error", "protocol.identity_mismatch")
        assert (await link.beat())["type"] == "heartbeat_ack"
        hello = await link.hello(manager_uuid=victim.uuid)
        assert hello["code"] == "protocol.identity_mismatch"
    after = query(cluster, "SELECT last_heartbeat FROM node_managers m JOIN runners r"
                  " ON r.id = m.runner_id WHERE r.uuid = %s", victim.uuid)  # fmt: skip
    assert after == before
    entries = (
        "SELECT count(*) FROM audit_log"
        " WHERE action = 'manager.forged_identity' AND actor_id = %s AND object = %s"
    )
    audited = query(cluster, entries, liar.uuid, victim.uuid)
    assert audited == [(2,)]


async def test_a_manager_touches_nothing_that_is_not_its_own(user: LiveUser, cluster: Cluster):
    tag = uuid4().hex
    async with Manager(user, tag).connected() as owner, Manager(user).connected() as other:
        campaign = await prepared(user, owner, tag, 1)
        [task] = (await owner.request("fetch_tasks", max_tasks=1))["tasks"]
        engaged = (await owner.beat("Executing"))["engagement"]
        attempt, uuid = task["task_id"], task["task_uuid"]
        snapshot = "SELECT state, runner_id, attempt, failures FROM active_tasks WHERE uuid = %s"
        before = query(cluster, snapshot, uuid)
        fence = {"assignment_id": engaged["assignment_id"]}
        assert (await other.request("fetch_tasks", max_tasks=4, **fence))["tasks"] == []
        for op in ("Finish", {"Commit": {"exit_status": 0}}, {"Cancel": {"reason": "x"}},
                   {"Upload": {"content_type": "result", "content_length": 1}},
                   {"Submit": {"group_name": user.name, "timeout": "1m",
                               "task_spec": {"args": ["true"]}}}):  # fmt: skip
            answer = await other.request("report_task", task_id=attempt, op=op)
            assert answer["success"] is False, (op, answer)
        lines = [{"task_id": attempt, "op": op}
                 for op in ("start", "finish", "cancel", "commit", "failure", "abort")]  # fmt: skip
        results = (await other.request("report_tasks", reports=lines))["results"]
        assert {line["answer"] for line in results} <= {"forbidden", "stale_attempt", "invalid"}
        for kind, body in {
            "report_failure": {"task_uuid": uuid, "failure_count": 1, "error_message": "x",
                               "worker_local_id": 0},
            "abort_task": {"task_uuid": uuid, "reason": "x"},
        }.items():  # fmt: skip
            answer = await other.request(kind, **body)
            assert answer["code"] == "task.stale_attempt"
            answer = await other.request(kind, task_id=attempt, **body)
            assert answer["success"] is False
        answer = await other.request("return_tasks", task_ids=[attempt])
        assert answer["results"][0]["answer"] == "forbidden"
        chunk = {"stream": "stdout", "offset": 0, "data": "aGk="}
        events = [
            {"task_id": attempt, "exec_state": "ExecSpawned"},
            {"task_id": attempt, "log": chunk},
        ]
        answer = await other.request("task_events", events=events)
        assert {line["answer"] for line in answer["results"]} <= {"forbidden", "stale_attempt"}
        wanted = [{"Attachment": {"key": "a"}}]
        for target in ({"task_id": attempt}, fence):
            answer = await other.request("resolve_resources", resources=wanted, **target)
            assert answer["code"] == "object.not_found"
        for kind, body in {
            "suite_completed": {"tasks_completed": 0, "tasks_failed": 0},
            "suite_failed": {"phase": "preparation"},
        }.items():
            answer = await other.request(kind, suite_uuid=campaign.uuid, **fence, **body)
            assert answer["success"] is False
        assert query(cluster, snapshot, uuid) == before
        told = await owner.beat("Executing", inventory=[attempt])
        assert told["held"]["kept"] == [attempt]
        assert told["engagement"] == engaged


async def test_a_revoked_manager_is_out_within_seconds(user: LiveUser, figure: Figure):
    manager = Manager(user)
    async with manager.connected() as link:
        assert (await link.beat())["type"] == "heartbeat_ack"
        answer = await asyncio.to_thread(user.http.post, f"/managers/{manager.uuid}/revoke")
        assert answer.status_code < 300, answer.text
        revoked_at = time.monotonic()
        assert (await link.gone())[0] == 4401
        figure("revoked token: socket closed", time.monotonic() - revoked_at, "s", at_most=5)
    headers = {"Authorization": f"Bearer {manager.token}"}
    body = {"state": "Idle", "metrics": {}}
    refused = await asyncio.to_thread(
        user.http.post, "/managers/heartbeat", json=body, headers=headers
    )
    assert refused.status_code == 401


def hostile_frames(count: int) -> list[str | bytes]:
    """Frames that are no message, each of its own kind of wrong."""
    good = {"type": "fetch_task", "request_id": 1, "worker_local_id": 2}
    text = json.dumps(good)
    fixed: list[str | bytes] = [
        "", "{", "null", "[]", "5", '"x"', "{}", '{"type": 5}', '{"type": "nope"}',
        '{"type": "fetch_task"}', '{"type": "fetch_task", "request_id": -1, "worker_local_id": 0}',
        '{"type": "fetch_task", "request_id": 1e400, "worker_local_id": 0}',
        '{"type": "fetch_task", "request_id": NaN, "worker_local_id": 0}',
        '{"type": "fetch_tasks", "request_id": 1, "max_tasks": 100000}',
        '{"type": "abort_task", "task_uuid": "x", "reason": ""}',
        '{"type": "abort_task", "task_uuid": "' + str(uuid4()) + '", "reason": "\\u0000"}',
        '{"type": "abort_task", "task_uuid": "' + str(uuid4()) + '", "reason": "\\ud800"}',
        '{"request_id": 3, "type": "report_task", "task_id": 1, "op": "Explode"}',
        '{"request_id": 3, "type": "report_task", "task_id": 1, "op": {}}',
        '{"type": "fetch_task", "request_id": ' + "9" * 4300 + "}",
        '{"x": ' + "[" * 100_000, b"\xff\xfe", b"\x00" * 64, text.encode()[:-3],
        '{"type": "heartbeat", "manager_uuid": "' + str(uuid4()) + '", "state": "Asleep"}',
    ]  # fmt: skip
    dice = random.Random(7)
    while len(fixed) < count:
        cut = dice.randrange(1, len(text))
        fixed.append(text[:cut] + dice.choice('{}[]",:\\') + text[cut + 1 : -1])
    return fixed


async def test_hundreds_of_malformed_frames_are_answered_and_the_socket_lives(
    user: LiveUser, cluster: Cluster
):
    async with Manager(user).connected() as link, Manager(user).connected() as neighbour:
        frames = hostile_frames(400)
        for frame in frames:
            await link.socket.send(frame)
        async with asyncio.timeout(30):
            while len(link.pushes) < len(frames):
                assert link.closed is None, (link.closed, len(link.pushes))
                await neighbour.beat()
        codes = {frame["code"] for frame in link.pushes}
        assert {frame["type"] for frame in link.pushes} == {"error"}
        assert codes == {"protocol.malformed", "protocol.unknown_type"}
        assert 3 in {frame["request_id"] for frame in link.pushes}
        assert (await link.beat())["type"] == "heartbeat_ack"


async def test_an_oversize_frame_ends_the_socket(user: LiveUser):
    async with Manager(user).connected(max_size=None) as link:
        await link.socket.send("x" * (MAX_FRAME_BYTES + 1))
        code, _ = await link.gone()
        assert code in {1009, 4413}


async def test_a_flood_of_frames_ends_the_socket(user: LiveUser):
    async with Manager(user).connected() as link:
        frame = json.dumps({"type": "nope"})
        with suppress(ConnectionClosed):
            for _ in range(3000):
                await link.socket.send(frame)
        code, _ = await link.gone()
        assert code == 4429


async def test_a_peer_that_does_not_read_is_cut_off_alone(user: LiveUser, cluster: Cluster):
    tag = uuid4().hex
    manager = Manager(user, tag)
    hook = {"args": ["true"], "timeout": "1m", "envs": {"A": "x" * 100_000}}
    async with manager.connected() as link:
        await prepared(user, link, tag, 1, env_preparation=hook)
    async with (
        manager.connected(max_queue=1, compression=None) as deaf,
        Manager(user).connected() as neighbour,
    ):
        deaf._reader.cancel()
        await asyncio.gather(deaf._reader, return_exceptions=True)
        # Paced, so that each is answered: 100 KB a time fill what the kernel buffers for us.
        for n in range(300):
            await deaf.send(type="hello", request_id=n, process_id=str(uuid4()))
            await (neighbour.beat() if n % 20 == 0 else asyncio.sleep(0.01))
        deadline = time.monotonic() + 20
        while "answers are not read" not in cluster.log("web0"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        assert (await neighbour.beat())["type"] == "heartbeat_ack"
        deaf.socket.transport.abort()
