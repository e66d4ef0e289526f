"""A worker submits the task that follows the one it is finishing."""

from typing import Any
from uuid import UUID

import pytest

from accounts.actors import SYSTEM
from accounts.models import User
from accounts.services.users import set_user_state
from mitosis_protocol.enums import Role, TaskPhase, UserState
from runners.models import GroupRunner
from tasks.models import ActiveTask
from tests.integration.workers.inprocess import WorkerSide
from tests.integration.workers.people import new_group, new_task


def following(**changes: Any) -> dict[str, Any]:
    return {
        "Submit": {
            "group_name": "ada",
            "tags": ["gpu"],
            "labels": ["next"],
            "timeout": "1h",
            "priority": 3,
            "task_spec": {"args": ["true"]},
            **changes,
        }
    }


@pytest.fixture
def finished(owner: User, worker: WorkerSide) -> int:
    """The attempt of a task whose command has ended."""
    new_task(owner)
    attempt_id: int = worker.fetch()["id"]
    worker.report(attempt_id, "Finish")
    return attempt_id


def test_the_new_task_waits_for_the_commit_of_the_old_one(
    owner: User, worker: WorkerSide, finished: int
):
    assert worker.report(finished, following()).json() == {"url": None}
    old = ActiveTask.objects.get(state=TaskPhase.FINISHING)
    new = ActiveTask.objects.get(state=TaskPhase.PENDING)
    assert old.downstream_task_uuid == new.uuid
    assert (new.upstream_task_uuid, new.creator_id) == (old.uuid, owner.pk)
    assert (new.tags, new.labels, new.timeout_s, new.priority) == (["gpu"], ["next"], 3600, 3)
    assert new.uuid.version == 4, "existing clients refuse any other"
    worker.commit(finished)
    assert ActiveTask.objects.get().state is TaskPhase.READY


def test_a_second_submission_is_another_task_and_takes_the_link(worker: WorkerSide, finished: int):
    for labels in (["one"], ["two"]):
        assert worker.report(finished, following(labels=labels)).status_code == 200
    assert ActiveTask.objects.filter(state=TaskPhase.PENDING).count() == 2
    old = ActiveTask.objects.get(state=TaskPhase.FINISHING)
    linked = ActiveTask.objects.get(uuid=old.downstream_task_uuid)
    assert linked.labels == ["two"]


def test_a_submission_with_a_key_is_taken_once(worker: WorkerSide, finished: int):
    for _ in range(3):
        answer = worker.report(finished, following(), **{"Idempotency-Key": "attempt-submit"})
        assert answer.status_code == 200
    new = ActiveTask.objects.get(state=TaskPhase.PENDING)
    assert UUID(str(new.uuid)).version == 4


def test_nothing_is_submitted_before_the_command_ended(owner: User, worker: WorkerSide):
    new_task(owner)
    attempt_id = worker.fetch()["id"]
    assert worker.report(attempt_id, following()).status_code == 400
    assert ActiveTask.objects.count() == 1


def test_the_group_has_to_be_the_same(owner: User, worker: WorkerSide, finished: int):
    new_group("lab", owner)
    for name in ("lab", "nowhere"):
        assert worker.report(finished, following(group_name=name)).status_code == 400
    assert ActiveTask.objects.count() == 1


def test_a_worker_that_was_reduced_to_reading_submits_nothing(worker: WorkerSide, finished: int):
    GroupRunner.objects.update(role=Role.READ)
    assert worker.report(finished, following()).status_code == 403
    assert worker.commit(finished).status_code == 200


def test_a_locked_creator_submits_nothing(owner: User, worker: WorkerSide, finished: int):
    set_user_state(actor=SYSTEM, username=owner.username, state=UserState.LOCKED)
    assert worker.report(finished, following()).status_code == 403
    assert worker.commit(finished).status_code == 200


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"timeout": "-5s"}, 400),
        ({"timeout": 5}, 422),
        ({"priority": 2**31}, 422),
        ({"task_spec": {}}, 422),
        ({"tags": ["x" * 300]}, 400),
        ({"task_spec": {"args": ["x" * 70_000]}}, 400),
    ],
)
def test_a_wrong_task_is_refused(
    worker: WorkerSide, finished: int, change: dict[str, Any], status: int
):
    assert worker.report(finished, following(**change)).status_code == status
    assert ActiveTask.objects.count() == 1


def test_an_attempt_of_somebody_else_submits_nothing(worker: WorkerSide, finished: int):
    assert worker.report(finished + 1, following()).status_code == 404
