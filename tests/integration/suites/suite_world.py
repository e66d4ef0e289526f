"""Suites over HTTP: bodies, answers, and the shortcuts the tests of this folder share."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse

from suites.models import TaskSuite
from tests.integration.workers.people import Caller


def spec(group: str = "ada", **changes: Any) -> dict[str, Any]:
    """The body of `POST /suites`."""
    return {"group_name": group, "worker_schedule": {"worker_count": 4}, **changes}


def task(group: str = "ada", **changes: Any) -> dict[str, Any]:
    """The body of `POST /tasks`."""
    return {
        "group_name": group,
        "tags": [],
        "labels": [],
        "timeout": "10m",
        "priority": 0,
        "task_spec": {"args": ["true"]},
        **changes,
    }


def ok(answer: HttpResponse, status: int = 200) -> Any:
    """The answer's JSON; fails with what the server said."""
    assert answer.status_code == status, (answer.status_code, answer.content)
    return answer.json() if answer.content else None


def refused(answer: HttpResponse, status: int, *words: str) -> dict[str, Any]:
    """The problem body of a refusal that mentions all of `words`."""
    assert answer.status_code == status, (answer.status_code, answer.content)
    body: dict[str, Any] = answer.json()
    assert body["msg"]
    for word in words:
        assert word in body["msg"], body
    return body


def make(caller: Caller, group: str = "ada", **changes: Any) -> TaskSuite:
    made = ok(caller.call("POST", "/suites", spec(group, **changes)), 201)
    return TaskSuite.objects.select_related("group", "creator").get(uuid=made["uuid"])


def submit(caller: Caller, suite: TaskSuite, **changes: Any) -> UUID:
    body = task(suite.group.name, suite_uuid=str(suite.uuid), **changes)
    return UUID(ok(caller.call("POST", "/tasks", body))["uuid"])


def act(caller: Caller, suite: TaskSuite, verb: str, body: Any = None) -> HttpResponse:
    return caller.call("POST", f"/suites/{suite.uuid}/{verb}", body)
