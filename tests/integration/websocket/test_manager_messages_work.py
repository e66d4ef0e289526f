"""What each message does to tasks, suites and engagements, through the real session."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from accounts.actors import SYSTEM
from accounts.models import Group
from accounts.services.groups import set_priority_ceiling
from managers.models import SuiteAssignment
from managers.services.registration import RegisteredManager
from managers.services.scheduler import run_pass
from managers.services.session_threads import in_thread
from suites.models import TaskSuite
from tasks.models import ActiveTask, ArchivedTask, Attachment
from tasks.services import manager_events
from tests.integration.managers.fleet import connect, registered
from tests.integration.suites.campaign import make_suite, make_user, submit
from tests.integration.websocket.socket_world import FakeServer

pytestmark = [pytest.mark.usefixtures("_process"), pytest.mark.django_db(transaction=True)]


class World:
    """A manager that is given a suite with three tasks."""

    def __init__(self) -> None:
        self.user = make_user(f"ada{uuid4().hex[:8]}")
        self.manager: RegisteredManager = registered(self.user)
        self.suite: TaskSuite = make_suite(self.user)
        submit(self.suite, 3)
        connect(self.manager.runner)
        run_pass()

    @property
    def group(self) -> Group:
        return self.suite.group


class Talk:
    """Requests and answers, one at a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        token = world.manager.tokens.token
        self.server = FakeServer({"authorization": f"Bearer {token}"})
        self._last = 0

    async def ask(self, kind: str, **body: Any) -> dict[str, Any]:
        self._last += 1
        self.server.give(type=kind, request_id=self._last, **body)
        while (answer := await self.server.answer()).get("request_id") != self._last:
            pass
        return answer

    async def beat(self, state: str, **more: Any) -> dict[str, Any]:
        uuid = str(self.world.manager.runner.uuid)
        return await self.ask("heartbeat", manager_uuid=uuid, state=state, metrics={}, **more)

    async def fetch(self, count: int = 1) -> list[dict[str, Any]]:
        tasks: list[dict[str, Any]] = (await self.ask("fetch_tasks", max_tasks=count))["tasks"]
        return tasks

    async def line(self, task: dict[str, Any], op: str, **more: Any) -> dict[str, Any]:
        report = {"task_id": task["task_id"], "op": op, **more}
        answer = await self.ask("report_tasks", reports=[report])
        [result] = answer["results"]
        return dict(result)


@pytest.fixture
def world(transactional_db: None) -> World:
    return World()


@pytest.fixture
async def talk(world: World, _process: None) -> AsyncIterator[Talk]:
    talk = Talk(world)
    assert (await talk.server.next())["type"] == "websocket.accept"
    await talk.beat("Preparing")
    await talk.beat("Executing")
    yield talk
    talk.server.leave()
    await talk.server.task


async def held(task: dict[str, Any]) -> ActiveTask:
    return await in_thread(ActiveTask.objects.get, uuid=UUID(task["task_uuid"]))


async def test_tasks_are_offered_only_once_the_host_is_prepared(world: World):
    talk = Talk(world)
    assert (await talk.server.next())["type"] == "websocket.accept"
    assert await talk.fetch() == []
    await talk.beat("Preparing")
    assert await talk.fetch() == []
    await talk.beat("Executing")
    assert len(await talk.fetch(8)) == 3
    talk.server.leave()
    await talk.server.task


async def test_a_crash_is_counted_and_then_the_task_is_given_up(talk: Talk):
    [task] = await talk.fetch()
    await talk.line(task, "start")
    death = {
        "task_uuid": task["task_uuid"],
        "error_message": "SIGSEGV",
        "worker_local_id": 1,
        "signal": 11,
    }
    first = await talk.ask("report_failure", failure_count=1, **death)
    assert (first["success"], first["action"]) == (True, "keep")
    again = await talk.ask("report_failure", failure_count=1, **death)
    assert again["answer"] == "ok_duplicate"
    second = await talk.ask("report_failure", failure_count=2, **death)
    assert second["action"] in {"requeue", "end"}


async def test_an_aborted_task_is_not_offered_to_the_same_manager_again(talk: Talk):
    [task] = await talk.fetch()
    answer = await talk.ask("abort_task", task_uuid=task["task_uuid"], reason="no luck")
    assert answer["success"]
    assert task["task_uuid"] not in {one["task_uuid"] for one in await talk.fetch(8)}


async def test_a_returned_task_is_free_and_costs_nothing(talk: Talk):
    [task] = await talk.fetch()
    answer = await talk.ask("return_tasks", task_ids=[task["task_id"]])
    assert answer["results"][0]["answer"] == "ok"
    row = await held(task)
    assert (row.runner_id, row.failures) == (None, 0)


async def test_a_finished_task_may_upload_and_submit_before_it_is_committed(talk: Talk):
    [task] = await talk.fetch()
    about = {"task_id": task["task_id"]}
    assert (await talk.ask("report_task", op={"Finish": {"exit_code": 0}}, **about))["success"]
    upload = {"Upload": {"artifact_path": "out/result.tar.gz", "content_length": 10}}
    answer = await talk.ask("report_task", op=upload, **about)
    assert answer["url"].startswith("http")
    wrong = {"Upload": {"artifact_path": "passwd", "content_length": 10}}
    assert (await talk.ask("report_task", op=wrong, **about))["answer"] == "invalid"
    follow_up = {
        "group_name": talk.world.user.username,
        "timeout": "1m",
        "task_spec": {"args": ["true"]},
    }
    await in_thread(
        set_priority_ceiling, actor=SYSTEM, group_name=talk.world.user.username, ceiling=10
    )
    high = await talk.ask("report_task", op={"Submit": {**follow_up, "priority": 11}}, **about)
    assert (high["success"], high["answer"]) == (False, "invalid")
    answer = await talk.ask("report_task", op={"Submit": follow_up}, **about)
    assert answer["success"], answer
    made = await in_thread(ActiveTask.objects.get, uuid=UUID(answer["task_uuid"]))
    assert made.suite_id == talk.world.suite.pk
    assert (await talk.ask("report_task", op="Commit", **about))["action"] == "end"
    done = await in_thread(ArchivedTask.objects.get, uuid=UUID(task["task_uuid"]))
    assert done.outcome.value == "succeeded"


async def test_a_commit_that_never_told_its_exit_is_refused(talk: Talk):
    [task] = await talk.fetch()
    answer = await talk.ask("report_task", op="Commit", task_id=task["task_id"])
    assert (answer["success"], answer["answer"]) == (False, "invalid")


async def test_news_of_a_run_reach_its_log(talk: Talk):
    [task] = await talk.fetch()
    await talk.line(task, "start")
    about = {"task_id": task["task_id"]}
    events = [
        {"exec_state": "ExecSpawned", **about},
        {"progress": {"percent": 50}, **about},
        {"log": {"stream": "stdout", "offset": 0, "data": "aGVsbG8="}, **about},
    ]
    answer = await talk.ask("task_events", events=events)
    assert [line["answer"] for line in answer["results"]] == ["ok"] * 3


async def test_pieces_of_output_that_came_together_are_stored_at_once(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
):
    [task] = await talk.fetch()
    await talk.line(task, "start")
    together = asyncio.Barrier(3)

    async def store(*_: object) -> None:
        await together.wait()

    monkeypatch.setattr(manager_events, "append_log_chunk", store)
    pieces = [
        {"task_id": task["task_id"], "log": {"stream": "stdout", "offset": at, "data": "aGVsbG8="}}
        for at in (0, 5, 10)
    ]
    answer = await talk.ask("task_events", events=pieces)
    assert [line["answer"] for line in answer["results"]] == ["ok"] * 3


async def test_files_of_the_group_are_resolved_and_others_are_absent(talk: Talk):
    [task] = await talk.fetch()
    await in_thread(Attachment.objects.create, group=talk.world.group, key="data.bin", size=3)
    wanted = [{"Attachment": {"key": "data.bin"}}, {"Attachment": {"key": "other"}}]
    engaged = (await talk.beat("Executing"))["engagement"]
    for target in (
        {"task_id": task["task_id"]},
        {"assignment_id": engaged["assignment_id"]},
    ):
        answer = await talk.ask("resolve_resources", resources=wanted, **target)
        found, missing = answer["resources"]
        assert found["url"].startswith("http")
        assert found["size"] == 3
        assert missing["error"] == "object.not_found"


async def test_a_failed_preparation_leads_to_cleanup_and_freedom(talk: Talk):
    suite_uuid = str(talk.world.suite.uuid)
    answer = await talk.ask(
        "suite_failed",
        suite_uuid=suite_uuid,
        phase="preparation",
        exit_code=2,
        stderr_tail="no space",
    )
    assert (answer["success"], answer["is_blocked"]) == (True, False)
    told = await talk.beat("Executing")
    assert told["engagement"]["state"] == "Cleanup"
    farewell = await talk.server.answer()
    assert (farewell["type"], farewell["reason"]) == ("suite_drained", "preparation")
    # Its `suite_completed` got lost: being idle says the same.
    await talk.beat("Idle")
    assert (await talk.beat("Idle"))["engagement"] is None
    rows = SuiteAssignment.objects.filter(released_at__isnull=True)
    assert await in_thread(rows.count) == 0
