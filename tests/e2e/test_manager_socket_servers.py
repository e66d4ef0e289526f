"""The socket on daphne, and on a fleet whose coordinator is killed."""

import asyncio
from collections.abc import Iterator

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.e2e.cluster import Cluster
from tests.e2e.manager_client import Manager, query
from tests.harness import TestServices
from tests.integration.workers.live_user import LiveUser

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

FLEET = 40  # registrations are throttled to 50 a second


@pytest.fixture(scope="module")
def mixed(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("daphne"), coordinators=2, server="daphne") as running:
        yield running


@pytest.fixture(scope="module")
def user(mixed: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(mixed)
    yield found
    found.close()


async def test_daphne_serves_the_socket_too(user: LiveUser, mixed: Cluster):
    manager = Manager(user)
    async with manager.connected() as old:
        assert (await old.hello())["type"] == "welcome"
        assert (await old.request("nope"))["code"] == "protocol.unknown_type"
        async with manager.connected() as new:
            code, _ = await old.gone()  # daphne keeps the reason to itself
            assert code == 4409
            assert (await old.pushed("error"))["code"] == "session.superseded"
            assert (await new.beat())["type"] == "heartbeat_ack"
    with pytest.raises(InvalidStatus) as refused:
        async with connect(mixed.url.replace("http", "ws", 1) + "/ws/managers", proxy=None):
            pass
    assert refused.value.response.status_code in {401, 403}


async def test_a_fleet_goes_on_when_its_coordinator_is_killed(user: LiveUser, mixed: Cluster):
    fleet = [Manager(user) for _ in range(FLEET)]

    async def serve(manager: Manager) -> int:
        async with manager.connected(mixed.urls[1]) as link:
            await link.beat()
            ready.release()
            await link.gone(30)
        async with manager.connected(mixed.urls[0]) as link:
            await link.hello()
            answer = await link.beat()
            assert answer["type"] == "heartbeat_ack"
        return 1

    ready = asyncio.Semaphore(0)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        serving = [group.create_task(serve(manager)) for manager in fleet]
        for _ in fleet:
            await ready.acquire()
        mixed.kill("web1")
    assert sum(task.result() for task in serving) == FLEET
    epochs = query(
        mixed,
        "SELECT min(session_epoch), max(session_epoch) FROM runners WHERE uuid = ANY (%s)",
        [manager.uuid for manager in fleet],
    )
    assert epochs == [(2, 2)]
