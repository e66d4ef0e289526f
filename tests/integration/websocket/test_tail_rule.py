"""No prefetched task waits on one host while another idles: real sessions, real Valkey."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from managers.services.registration import RegisteredManager
from managers.services.scheduler import run_pass
from managers.services.session_threads import in_thread
from mitosis_protocol.specs import WorkerSchedule
from suites.models import TaskSuite
from tasks.services.suite_surplus import SURPLUS
from tasks.statements import array
from tests.integration.managers.fleet import connect, registered
from tests.integration.suites.campaign import make_suite, make_user, submit
from tests.integration.websocket.socket_world import FakeServer

pytestmark = [
    pytest.mark.usefixtures("_process"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(120),
]

Frame = dict[str, Any]
WORKERS = 2
PATIENCE_S = 30.0  # for what takes a moment when the machine is not loaded


class Host:
    """One manager's socket; what comes unasked collects in `pushes`."""

    def __init__(self, manager: RegisteredManager) -> None:
        self.manager = manager
        self.id = manager.runner.pk
        self.server = FakeServer({"authorization": f"Bearer {manager.tokens.token}"})
        self.pushes: list[Frame] = []
        self._last = 0

    async def ask(self, kind: str, **body: Any) -> Frame:
        self._last += 1
        self.server.give(type=kind, request_id=self._last, **body)
        while (answer := await self.server.answer(PATIENCE_S)).get("request_id") != self._last:
            self.pushes.append(answer)
        return answer

    async def beat(self, state: str) -> Frame:
        uuid = str(self.manager.runner.uuid)
        return await self.ask("heartbeat", manager_uuid=uuid, state=state, metrics={})

    async def prepare(self) -> None:
        assert (await self.server.next(PATIENCE_S))["type"] == "websocket.accept"
        await self.beat("Preparing")
        await self.beat("Executing")

    async def fetch(self, count: int) -> list[Frame]:
        tasks: list[Frame] = (await self.ask("fetch_tasks", max_tasks=count))["tasks"]
        return tasks

    async def pushed(self, kind: str) -> Frame:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for frame in self.pushes:
                    if frame["type"] == kind:
                        self.pushes.remove(frame)
                        return frame
                self.pushes.append(await self.server.answer(PATIENCE_S))

    async def leave(self) -> None:
        self.server.leave()
        await self.server.task


class World:
    """Two managers engaged with one suite of six tasks, two workers each."""

    def __init__(self, **task: Any) -> None:
        user = make_user(f"ada{uuid4().hex[:8]}")
        self.managers = [registered(user, "gpu"), registered(user)]
        schedule = WorkerSchedule(worker_count=WORKERS)
        self.suite: TaskSuite = make_suite(user, worker_schedule=schedule)
        submit(self.suite, 5)
        submit(self.suite, 1, **task)
        connect(*(one.runner for one in self.managers))
        assert len(run_pass().engaged) == 2


async def hosts_of(world: World) -> tuple[Host, Host]:
    holder, idle = (Host(one) for one in world.managers)
    await holder.prepare()
    await idle.prepare()
    return holder, idle


@pytest.fixture
def world(transactional_db: None) -> World:
    return World()


@pytest.fixture
async def hosts(world: World, _process: None) -> AsyncIterator[tuple[Host, Host]]:
    holder, idle = await hosts_of(world)
    yield holder, idle
    await holder.leave()
    await idle.leave()


async def surplus_for(*hosts: Host) -> list[tuple[int, int, int]]:
    """Whom the rule would ask: manager, what it keeps, how many it is named."""
    rows = await SURPLUS.fetch({"runner_ids": array(one.id for one in hosts), "most": 256})
    return [(r.runner_id, r.number, len(r.attempt_ids)) for r in rows if r.kind == "holder"]


async def test_surplus_is_asked_back_and_reaches_the_idle_host(
    world: World, hosts: tuple[Host, Host]
) -> None:
    holder, idle = hosts
    held = await holder.fetch(6)
    assert len(held) == 6
    assert await idle.fetch(WORKERS) == []
    asked = await holder.pushed("return_surplus")
    assert asked["suite_uuid"] == str(world.suite.uuid)
    newest = sorted((task["task_id"] for task in held), reverse=True)[:WORKERS]
    assert (asked["keep"], asked["task_ids"]) == (4, newest), "as many as the idle host can run"
    answer = await holder.ask("return_tasks", task_ids=asked["task_ids"])
    assert [line["answer"] for line in answer["results"]] == ["ok"] * WORKERS
    told = await idle.pushed("tasks_ready")
    assert told["kind"] == "returned"
    moved = await idle.fetch(WORKERS)
    before = {task["task_uuid"] for task in held if task["task_id"] in asked["task_ids"]}
    assert {task["task_uuid"] for task in moved} == before
    assert await surplus_for(holder, idle) == []


async def test_whoever_ignores_it_loses_nothing(hosts: tuple[Host, Host]) -> None:
    holder, idle = hosts
    held = await holder.fetch(6)
    assert await idle.fetch(1) == []
    await holder.pushed("return_surplus")
    lines = [{"task_id": task["task_id"], "op": "commit", "exit_status": 0} for task in held]
    answer = await holder.ask("report_tasks", reports=lines)
    assert {line["answer"] for line in answer["results"]} == {"ok"}


async def test_a_host_is_not_asked_for_what_its_own_workers_run(hosts: tuple[Host, Host]) -> None:
    holder, idle = hosts
    held = await holder.fetch(3)
    assert await surplus_for(idle) == [(holder.id, 2, 1)]
    lines = [{"task_id": task["task_id"], "op": "start"} for task in held]
    await holder.ask("report_tasks", reports=lines)
    assert await surplus_for(idle) == [], "what was started stays"


async def test_a_host_whose_workers_are_all_busy_asks_for_nothing(
    hosts: tuple[Host, Host],
) -> None:
    holder, idle = hosts
    await holder.fetch(4)
    assert await surplus_for(idle) == [(holder.id, 2, 2)]
    await idle.fetch(1)
    assert await surplus_for(idle) == [(holder.id, 3, 1)]
    await idle.fetch(1)
    assert await surplus_for(idle) == []


async def test_what_the_idle_host_could_not_run_is_not_asked_back() -> None:
    world = await in_thread(World, tags=["gpu"])
    holder, idle = await hosts_of(world)
    plain = await idle.fetch(5)
    assert len(plain) == 5
    [special] = await holder.fetch(1)
    lines = [{"task_id": task["task_id"], "op": "commit", "exit_status": 0} for task in plain]
    await idle.ask("report_tasks", reports=lines)
    more = await in_thread(submit, world.suite, 3, tags=["gpu"])
    assert len(await holder.fetch(3)) == len(more)
    assert await idle.fetch(1) == []
    assert await surplus_for(idle) == []
    assert special["task_id"]
    await holder.leave()
    await idle.leave()


async def test_a_task_that_comes_back_by_itself_is_told_to_the_idle_host(
    hosts: tuple[Host, Host],
) -> None:
    holder, idle = hosts
    held = await holder.fetch(6)
    lines = [{"task_id": task["task_id"], "op": "start"} for task in held]
    await holder.ask("report_tasks", reports=lines)
    assert await idle.fetch(1) == []
    given_up = held[0]
    answer = await holder.ask("abort_task", task_uuid=given_up["task_uuid"], reason="no luck")
    assert answer["action"] == "requeue"
    await idle.pushed("tasks_ready")
    [found] = await idle.fetch(1)
    assert found["task_uuid"] == given_up["task_uuid"]
