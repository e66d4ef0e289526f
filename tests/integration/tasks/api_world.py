"""People, tasks and a worker for the API tests of this folder; rows come from the real services."""

import os
from typing import Any
from uuid import UUID

from django.http import HttpResponse

from accounts.models import User
from mitosis_protocol.enums import Role, TaskResultMessage
from tasks.dispatcher import Held
from tasks.rows import ClaimedTask
from tasks.services.claim import claim_for_worker_sync
from tasks.services.report import commit_report, finish_sync, settle_sync
from tests.integration.workers.people import Caller, caller_of, new_group, new_user, new_worker

__all__ = ["Caller", "TeamWorker", "caller_of", "new_group", "new_user", "ok", "refused", "task"]


def task(group: str = "ada", **changes: Any) -> dict[str, Any]:
    """The body of a submit."""
    spec = {"args": ["true"], **changes.pop("task_spec", {})}
    body = {
        "group_name": group,
        "tags": [],
        "labels": [],
        "timeout": "10m",
        "priority": 0,
        "task_spec": spec,
    }
    return {**body, **changes}


def ok(answer: HttpResponse, status: int = 200) -> Any:
    """The answer's JSON; fails with what the server said."""
    assert answer.status_code == status, (answer.status_code, answer.content)
    return answer.json() if answer.content else None


def refused(answer: HttpResponse, status: int, *words: str) -> dict[str, Any]:
    """The problem body of a refusal that mentions all of `words`."""
    assert answer.status_code == status, (answer.status_code, answer.content)
    body: dict[str, Any] = answer.json()
    assert body["msg"]
    assert body["status"] == status
    for word in words:
        assert word in body["msg"], body
    return body


def allowed_s(seconds: float) -> float:
    """`seconds` of this machine for ourselves: longer while others compute on it, too."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def submit(caller: Caller, **changes: Any) -> UUID:
    return UUID(ok(caller.call("POST", "/tasks", task(**changes)))["uuid"])


class TeamWorker:
    """An independent worker, driven by hand through the services."""

    def __init__(self, owner: User, groups: list[str] | None = None) -> None:
        registered = new_worker(owner, groups=groups or [])
        self.runner_id = registered.runner.pk
        self.uuid = registered.runner.uuid

    def claim(self) -> ClaimedTask:
        claimed = claim_for_worker_sync(runner_id=self.runner_id)
        assert claimed is not None
        return claimed

    def finish(self, claimed: ClaimedTask, *, cancelled: bool = False) -> None:
        finish_sync(Held(claimed.attempt_id, self.runner_id, cancelled))

    def commit(
        self, claimed: ClaimedTask, exit_status: int = 0, msg: TaskResultMessage | None = None
    ) -> None:
        report = commit_report(
            attempt_id=claimed.attempt_id,
            runner_id=self.runner_id,
            exit_status=exit_status,
            msg=msg,
        )
        settle_sync([report])

    def run(self, exit_status: int = 0) -> UUID:
        claimed = self.claim()
        self.commit(claimed, exit_status)
        return claimed.uuid


READ, WRITE, ADMIN = Role.READ, Role.WRITE, Role.ADMIN
