"""Ten thousand frames of bad will, or a hundred thousand tasks at once: nobody else notices."""

import asyncio
import hashlib
import json
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from uuid import uuid4

import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from benchmarks.manager_fleet import Credential
from mitosis_protocol.limits import MAX_FRAME_BYTES, MAX_MESSAGE_BURST
from tests.e2e.cluster import Cluster
from tests.e2e.hostile_frames import KINDS, Frame, Kind, Target, verdict_of
from tests.e2e.manager_client import Link, Manager, prepared, query
from tests.e2e.neighbours import neighbours
from tests.figures import Figure
from tests.integration.tasks.live_client import LiveUser as Tenant
from tests.integration.workers.live_user import LiveUser

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

IN_FLIGHT = 32  # below the 64 of a socket, so that none is refused for that
REPLAYS = 500
OVERSIZE = 40
FLOOD = MAX_MESSAGE_BURST + 300
FORGERIES = 10  # as many as a socket survives
PACE_S = 0.5  # each of them that often: together 700 frames a second
CALM_S = 4.0  # how long the neighbours are watched before and after
MAX_GROWTH_BYTES = 50_000_000
UNASKED = frozenset({"suite_assigned", "tasks_ready", "config_update"})
SNAPSHOT = "SELECT state, runner_id, attempt, failures FROM active_tasks WHERE uuid = %s"


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(cluster)
    yield found
    found.close()


async def pester(manager: Manager, frames: list[str | bytes]) -> list[Frame]:
    """One answer per frame, a handful of frames at once, twice a second."""
    address = manager.user.cluster.url.replace("http", "ws", 1) + "/ws/managers"
    headers = {"Authorization": f"Bearer {manager.token}"}
    answers: list[Frame] = []
    async with connect(address, additional_headers=headers, proxy=None) as socket:
        waiting = iter(frames)
        while chunk := list(islice(waiting, IN_FLIGHT)):
            for frame in chunk:
                await socket.send(frame)
            wanted, began = len(answers) + len(chunk), time.monotonic()
            while len(answers) < wanted:
                answer = json.loads(await asyncio.wait_for(socket.recv(), 30))
                if answer["type"] not in UNASKED:
                    answers.append(answer)
            await asyncio.sleep(max(0, began + PACE_S - time.monotonic()))
    return answers


async def send_kind(user: LiveUser, kind: Kind, target: Target) -> Counter[str]:
    frames = list(islice(kind.frames(target), kind.count))
    answers = await pester(Manager(user), frames)
    found = Counter(verdict_of(answer) for answer in answers)
    assert set(found) == kind.verdicts, (kind.name, found)
    return found


async def replay(link: Link, report: Frame, claim_id: str, held: set[int]) -> Counter[str]:
    """The same words again and again: a report that was taken, a claim that was answered."""
    found: Counter[str] = Counter()
    for _ in range(REPLAYS // IN_FLIGHT + 1):
        reports = [link.request("report_tasks", reports=[report]) for _ in range(IN_FLIGHT // 2)]
        claims = [
            link.request("fetch_tasks", max_tasks=2, claim_id=claim_id)
            for _ in range(IN_FLIGHT // 2)
        ]
        for answer in await asyncio.gather(*reports, *claims):
            found[verdict_of(answer)] += 1
            if answer["type"] == "tasks_available":
                assert {task["task_id"] for task in answer["tasks"]} == held
    assert set(found) == {"ok_duplicate", "tasks"}, found
    return found


async def exceed(user: LiveUser) -> Counter[str]:
    """Frames that are too large, each on a connection of its own, which it ends."""
    manager = Manager(user)
    found: Counter[str] = Counter()
    for _ in range(OVERSIZE):
        async with manager.connected(max_size=None) as link:
            await link.socket.send("x" * (MAX_FRAME_BYTES + 1))
            code, _ = await link.gone()
            found[str(code)] += 1
    assert set(found) <= {"1009", "4413"}, found
    return found


async def pour(user: LiveUser) -> Counter[str]:
    """More frames at once than anybody may send."""
    async with Manager(user).connected() as link:
        with suppress(ConnectionClosed):
            for _ in range(FLOOD):
                await link.socket.send('{"type": "nope"}')
        assert (await link.gone())[0] == 4429
        answered = len(link.pushes)
    assert MAX_MESSAGE_BURST - 10 <= answered < FLOOD
    return Counter({"flood": FLOOD})


async def impersonate(user: LiveUser, victim: str) -> Counter[str]:
    async with Manager(user).connected() as link:
        for _ in range(FORGERIES):
            answer = await link.beat("Executing", manager_uuid=victim)
            assert answer["code"] == "protocol.identity_mismatch"
        assert (await link.gone())[0] == 4400
    return Counter({"forged": FORGERIES})


async def test_ten_thousand_hostile_frames_disturb_nobody(
    user: LiveUser, cluster: Cluster, figure: Figure
):
    web = psutil.Process(cluster.child("web0").pid)
    tags = uuid4().hex, uuid4().hex
    owner, again = Manager(user, tags[0]), Manager(user, tags[1])
    friends = [Credential(one.uuid, one.token) for one in (Manager(user), Manager(user))]
    async with owner.connected() as owning, again.connected() as replaying:
        campaign = await prepared(user, owning, tags[0], 1)
        [task] = (await owning.request("fetch_tasks", max_tasks=1))["tasks"]
        engaged = (await owning.beat("Executing"))["engagement"]
        target = Target(owner.uuid, campaign.uuid, engaged["assignment_id"], task["task_uuid"],
                        task["task_id"])  # fmt: skip
        await prepared(user, replaying, tags[1], 3)
        [done] = (await replaying.request("fetch_tasks", max_tasks=1))["tasks"]
        taken = {"task_id": done["task_id"], "op": "commit", "exit_status": 0,
                 "op_id": str(uuid4())}  # fmt: skip
        await replaying.request("report_tasks", reports=[taken])
        claim_id = str(uuid4())
        claimed = await replaying.request("fetch_tasks", max_tasks=2, claim_id=claim_id)
        held = {one["task_id"] for one in claimed["tasks"]}
        before = query(cluster, SNAPSHOT, target.task_uuid)
        with neighbours(cluster.url, friends) as watching:
            started, resident = time.monotonic(), web.memory_info().rss
            await asyncio.sleep(CALM_S)
            began = time.monotonic()
            found = await asyncio.gather(
                *[send_kind(user, kind, target) for kind in KINDS],
                replay(replaying, taken, claim_id, held),
                exceed(user),
                pour(user),
                impersonate(user, owner.uuid),
            )
            ended = time.monotonic()
            await asyncio.sleep(CALM_S)
            samples = await asyncio.to_thread(watching.stop)
        growth = web.memory_info().rss - resident
        assert query(cluster, SNAPSHOT, target.task_uuid) == before
        told = await owning.beat("Executing", inventory=[target.attempt])
        assert told["held"]["kept"] == [target.attempt]
        assert told["engagement"] == engaged
    # Before and after: on a busy machine the two differ as much as the flood makes them.
    calm = (samples.between(started, began), samples.between(ended, time.monotonic()))
    quiet = max(statistics.median(one) for one in calm)
    loud = statistics.median(samples.between(began, ended))
    frames = sum(sum(one.values()) for one in found)
    print(f"{frames} frames in {ended - began:.1f} s; a neighbour's beat {1e3 * quiet:.1f} ms"
          f" otherwise, {1e3 * loud:.1f} ms while; memory {growth / 1e6:+.1f} MB")  # fmt: skip
    figure("hostile frames: answered", frames, "frames", at_least=10_000)
    figure("hostile frames: memory", growth / 1e6, "MB", at_most=MAX_GROWTH_BYTES / 1e6)
    figure("hostile frames: a neighbour's beat", loud / quiet, "x", at_most=2)
    assert "socket.crashed" not in cluster.log("web0")
    assert "handler_crashed" not in cluster.log("web0")


BATCH, BATCHES = 10_000, 5
ROWS = 50_000
SUPPLY = 3000  # tasks of the neighbour, more than it can claim meanwhile
CLAIM_EVERY_S = 0.01


def new_tenant(user: LiveUser) -> Tenant:
    """Somebody with a group of his own."""
    name, password = f"u{uuid4().hex[:10]}", "correct horse battery"
    digest = list(hashlib.md5(password.encode()).digest())
    made = {"username": name, "md5_password": digest, "admin": False}
    assert user.http.post("/admin/users", json=made).status_code == 200
    return Tenant(user.cluster, name, password)


def bulk_bodies(tenant: Tenant) -> list[tuple[str, bytes]]:
    """Ready to be sent: making them must not cost the one who measures."""
    task = {
        "group_name": tenant.name, "tags": [], "labels": ["bulk"], "timeout": "1m",
        "priority": 0, "task_spec": {"args": ["true"]},
    }  # fmt: skip
    batch = json.dumps({"tasks": [task] * BATCH}).encode()
    array = json.dumps({"template": task, "rows": [{}] * ROWS}).encode()
    return [("/tasks/submit", batch)] * BATCHES + [("/tasks/array", array)]


def send_bulk(tenant: Tenant) -> None:
    headers = {"Content-Type": "application/json"}
    for path, body in bulk_bodies(tenant):
        answer = tenant.http.post(path, content=body, headers=headers, timeout=120)
        assert answer.status_code in {200, 201}, answer.text[:500]


async def claim_until(link: Link, over: asyncio.Event) -> list[float]:
    """One task at a time, committed at once; how long each claim took."""
    took: list[float] = []
    while not over.is_set():
        began = time.monotonic()
        [task] = (await link.request("fetch_tasks", max_tasks=1, within_s=30))["tasks"]
        took.append(time.monotonic() - began)
        done = {"task_id": task["task_id"], "op": "commit", "exit_status": 0}
        await link.request("report_tasks", reports=[done], within_s=30)
        await asyncio.sleep(CLAIM_EVERY_S)
    return took


async def claim_for(link: Link, seconds: float) -> list[float]:
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    return await claim_until(link, over)


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


@pytest.mark.alone
async def test_a_neighbour_claims_in_time_while_somebody_submits_100_000_tasks(
    user: LiveUser, cluster: Cluster, figure: Figure
):
    tenant, tag = new_tenant(user), uuid4().hex
    async with Manager(user, tag).connected() as link:
        campaign = await prepared(user, link, tag, 1)
        task = {"group_name": user.name, "suite_uuid": campaign.uuid, "tags": [], "labels": [],
                "timeout": "1m", "priority": 0, "task_spec": {"args": ["true"]}}  # fmt: skip
        answer = user.http.post("/tasks/array", json={"template": task, "rows": [{}] * SUPPLY})
        assert answer.status_code == 201, answer.text
        before = await claim_for(link, CALM_S)
        over = asyncio.Event()
        claiming = asyncio.create_task(claim_until(link, over))
        await asyncio.to_thread(send_bulk, tenant)
        over.set()
        busy = await claiming
        after = await claim_for(link, CALM_S)
    tenant.http.close()
    [(count,)] = query(cluster, "SELECT count(*) FROM active_tasks WHERE 'bulk' = ANY (labels)")
    assert count == BATCH * BATCHES + ROWS
    # Before and after, as above: one of the two may have been a bad moment of the machine.
    quiet = max(statistics.median(before), statistics.median(after))
    figure("bulk submit: a neighbour's claim, p99", 1e3 * p99(busy), "ms", at_most=200)
    slower = statistics.median(busy) / quiet
    figure("bulk submit: a neighbour's claim, median", slower, "x", at_most=2)
    print(f"p99 of {len(before) + len(after)} claims {1e3 * p99([*before, *after]):.1f} ms, "
          f"of {len(busy)} meanwhile {1e3 * p99(busy):.1f} ms")  # fmt: skip
