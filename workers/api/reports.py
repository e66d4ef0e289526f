"""Reports: `POST /workers/tasks` takes what a worker says about the attempt in its hands.

The statements decide who holds what; here their words become the statuses existing workers know.
An existing worker gives up on anything but 2xx, 401, 403 (Upload) and 404, its result with it, so
trouble with the database is waited out inside the request.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from django.http import HttpRequest, HttpResponse

from accounts.ceilings import check_priority
from accounts.identity import Identity
from core.errors import (
    DependencyUnavailable,
    InvalidInput,
    NotFound,
    PermissionDenied,
    StaleAttempt,
)
from mitosis_protocol.enums import ConsentState, ReportAnswer, Role, UserState
from runners.models import GroupRunner
from tasks.dispatcher import Held
from tasks.models import ActiveTask, TaskAttempt
from tasks.services.attempt_uploads import issue_upload
from tasks.services.report import commit_report, finish, settle, submit_downstream
from workers.api.endpoint import answer, in_thread, persist, read_json, takes_direct
from workers.api.leaving import end_leaving
from workers.api.output import written
from workers.api.wire import CommitBody, ReportBody, SubmitBody, UploadBody, submission_id

Operation = Callable[[], Awaitable[str | None]]

_ACCEPTED: Final = frozenset({ReportAnswer.OK, ReportAnswer.OK_DUPLICATE})


@takes_direct
async def report(request: HttpRequest, identity: Identity) -> HttpResponse:
    """One operation on an attempt; answers the URL to PUT to after Upload."""
    body = read_json(request, ReportBody)
    key = request.headers.get("Idempotency-Key")
    operation = _operation(identity, body, key)

    async def reported() -> HttpResponse:
        return answer({"url": await operation()})

    return await persist(reported)


def _operation(identity: Identity, body: ReportBody, key: str | None) -> Operation:
    """What to do, as something that may be repeated while the database is away."""
    op = body.op
    if isinstance(op, str):
        held = Held(body.id, identity.id, is_cancelled=op == "Cancel")
        return lambda: _finish(held)
    if op.upload is not None:
        upload = op.upload
        return lambda: _issue_upload(identity.id, body.id, upload)
    if op.commit is not None:
        commit = op.commit
        return lambda: _commit(identity, body.id, commit)
    if op.submit is not None:
        return _submission(identity, body.id, op.submit, key)
    raise AssertionError("a decoded operation is one of these")


async def _finish(held: Held) -> None:
    given = await finish(held)
    if given is ReportAnswer.INVALID:
        # Either the attempt is unknown, or it was finished the other way round before.
        await in_thread(_check_known, held.attempt_id, held.runner_id)
    _expect(given, "Task was reported the other way before")


async def _commit(identity: Identity, attempt_id: int, body: CommitBody) -> None:
    said = commit_report(
        attempt_id=attempt_id,
        runner_id=identity.id,
        exit_status=body.exit_status,
        msg=body.msg,
    )
    await written(identity.id)
    [settled] = await settle([said])
    if settled.answer is ReportAnswer.INVALID:
        raise _not_assigned()
    _expect(settled.answer, "Task can not be marked as done")
    await end_leaving(identity)


async def _issue_upload(runner_id: int, attempt_id: int, body: UploadBody) -> str:
    try:
        upload = await issue_upload(
            attempt_id=attempt_id,
            runner_id=runner_id,
            content_type=body.content_type,
            size=body.content_length,
        )
    except StaleAttempt as error:
        raise _not_assigned() from error
    return upload.url


def _submission(
    identity: Identity, attempt_id: int, body: SubmitBody, key: str | None
) -> Operation:
    # Drawn once per request: our own repetition must find the first one's task.
    task_uuid = submission_id(attempt_id, key)
    task = body.to_new_task()

    async def submit() -> None:
        group_id = await in_thread(_check_rights, identity.id, attempt_id, body)
        made = await submit_downstream(
            attempt_id=attempt_id,
            runner_id=identity.id,
            group_id=group_id,
            task=task,
            op_id=task_uuid,
        )
        _expect(made.answer, "Task can not submit a new task before it is finished")

    return submit


def _check_rights(runner_id: int, attempt_id: int, body: SubmitBody) -> int:
    """The group the new task goes to; its creator acts through this worker."""
    held = ActiveTask.objects.select_related("group", "creator")
    task = held.filter(runner_id=runner_id, attempt_id=attempt_id).first()
    if task is None:
        raise _not_assigned()
    if task.group.name != body.group_name:
        raise InvalidInput("a new task has to be in the group of the task that submits it")
    may_write = GroupRunner.objects.filter(
        runner_id=runner_id,
        group_id=task.group_id,
        consent=ConsentState.ACCEPTED,
        role__in=[Role.WRITE, Role.ADMIN],
    )
    if task.creator.state is not UserState.ACTIVE or not may_write.exists():
        raise PermissionDenied
    check_priority(task.group, body.priority)
    return task.group_id


def _check_known(attempt_id: int, runner_id: int) -> None:
    if not TaskAttempt.objects.filter(pk=attempt_id, runner_id=runner_id).exists():
        raise _not_assigned()


def _expect(given: ReportAnswer, precondition: str) -> None:
    """Nothing for what was accepted, now or before; the refusal existing workers know otherwise."""
    if given in _ACCEPTED:
        return
    if given is ReportAnswer.RETRY_LATER:
        raise DependencyUnavailable("The task is locked; try again")
    if given is ReportAnswer.INVALID:
        raise InvalidInput(precondition)
    # Stale, or somebody else's: to this worker there is no such task.
    raise _not_assigned()


def _not_assigned() -> NotFound:
    return NotFound("Task not found")
