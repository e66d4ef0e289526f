"""Ten thousand frames of bad will in half a minute: all answered, and nobody else notices."""

import asyncio
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


async def test_ten_thousand_hostile_frames_disturb_nobody(user: LiveUser, cluster: Cluster):
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
    assert frames >= 10_000
    assert growth < MAX_GROWTH_BYTES
    assert loud < 2 * quiet
    assert "socket.crashed" not in cluster.log("web0")
    assert "handler_crashed" not in cluster.log("web0")
