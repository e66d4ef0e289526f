"""What runners report about attempts they hold: Start, Finish, Cancel, Commit, Submit.

Every answer is typed and every report may be repeated. Identity comes from the caller's token
(`runner_id`), the fence is the attempt id. Upload is tasks.storage's: it needs `holds`, no write.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID, uuid5

import msgspec
from django.conf import settings

from managers.services.early_end import emptied_suites
from mitosis_protocol.enums import Outcome, ReportAnswer, TaskResultMessage
from tasks import store
from tasks.dispatcher import (
    Held,
    Progress,
    Settled,
    Started,
    answer_of,
    counted,
    get_dispatcher,
    settled_of,
)
from tasks.models import ActiveTask
from tasks.new_task import NewTask, checked_tags, encode_spec, lane_of
from tasks.rows import Report, SettleOp
from tasks.services.patience import answer_all
from tasks.statements import Params

# Existing workers send no op id; this one makes their repeated commit a duplicate, not an error.
_LEGACY_OPS: Final = UUID("8f14e45f-ceea-467f-9575-2b3f8d5a6c01")


class Downstream(msgspec.Struct, frozen=True):
    """The answer to a Submit; `uuid` and `number` name the new task when it was taken."""

    answer: ReportAnswer
    uuid: UUID
    number: int | None


def legacy_op_id(attempt_id: int, op: str) -> UUID:
    """The op id of a report that carries none."""
    return uuid5(_LEGACY_OPS, f"{op}:{attempt_id}")


def outcome_of(exit_status: int, msg: TaskResultMessage | None) -> Outcome:
    """What a raw wait status and a result message say. SQL adds what only it knows: a cancel."""
    if msg is TaskResultMessage.EXEC_TIMEOUT:
        return Outcome.TIMEOUT
    if msg is TaskResultMessage.USER_CANCELLATION:
        return Outcome.CANCELLED
    return Outcome.SUCCEEDED if msg is None and exit_status == 0 else Outcome.FAILED


def commit_report(
    *,
    attempt_id: int,
    runner_id: int,
    exit_status: int,
    msg: TaskResultMessage | None = None,
    outcome: Outcome | None = None,
    op_id: UUID | None = None,
) -> Report:
    """A Commit as `settle` takes it; `outcome` overrides what the status says (oom)."""
    return Report(
        attempt_id=attempt_id,
        runner_id=runner_id,
        op=SettleOp.COMMIT,
        op_id=op_id or legacy_op_id(attempt_id, "commit"),
        outcome=outcome or outcome_of(exit_status, msg),
        exit_status=exit_status,
        msg=msg,
    )


async def settle(reports: Sequence[Report]) -> list[Settled]:
    """Settle reports of any kind, in order; each stands for itself."""
    settled = await get_dispatcher().settlements.submit_all(reports)
    emptied_suites().note(
        one.suite_id for one in settled if one.action == "end" and one.suite_id is not None
    )
    return settled


def settle_sync(reports: Sequence[Report]) -> list[Settled]:
    """As settle, on Django's connection."""
    return answer_all(reports, _settle_once, is_busy=lambda s: s.answer is ReportAnswer.RETRY_LATER)


async def start(held: Sequence[Held]) -> list[Started]:
    """The commands are about to run; one whose cancel came first must not."""
    return await get_dispatcher().starts.submit_all(held)


async def finish(held: Held) -> ReportAnswer:
    """The command ended (`is_cancelled`: it was stopped); uploads and the commit follow."""
    return await get_dispatcher().finishes.submit(held)


def finish_sync(held: Held) -> ReportAnswer:
    """As finish, on Django's connection."""
    [answer] = answer_all(
        [held], _finish_once, is_busy=lambda answer: answer is ReportAnswer.RETRY_LATER
    )
    return answer


async def report_progress(items: Sequence[Progress]) -> list[ReportAnswer]:
    """Feedback of running commands, kept in each task's event log."""
    return await get_dispatcher().progress.submit_all(items)


async def submit_downstream(
    *, attempt_id: int, runner_id: int, group_id: int, task: NewTask, op_id: UUID
) -> Downstream:
    """A task that waits for the one being finished; its uuid is `op_id`, so repeating is safe.

    `group_id` is the group the runner named: it has to be the task's own.
    """
    params = _downstream_params(attempt_id, runner_id, group_id, task, op_id)
    [row] = await store.INSERT_DOWNSTREAM.fetch(params)
    return Downstream(answer_of(row.answer), op_id, row.number)


def submit_downstream_sync(
    *, attempt_id: int, runner_id: int, group_id: int, task: NewTask, op_id: UUID
) -> Downstream:
    """As submit_downstream, on Django's connection."""
    params = _downstream_params(attempt_id, runner_id, group_id, task, op_id)
    [row] = store.INSERT_DOWNSTREAM.fetch_sync(params)
    return Downstream(answer_of(row.answer), op_id, row.number)


def holds(*, attempt_id: int, runner_id: int) -> ActiveTask | None:
    """The task behind an attempt this runner holds or may still report; for Upload."""
    task = ActiveTask.objects.filter(attempt_id=attempt_id).first()
    if task is None or runner_id not in {task.runner_id, task.lost_runner_id}:
        return None
    return task


def _settle_once(reports: Sequence[Report]) -> list[Settled]:
    policy = settings.MITOSIS
    params = store.settle_params(
        reports, backoff_s=policy.retry_backoff_s, backoff_max_s=policy.retry_backoff_max_s
    )
    return counted([settled_of(row) for row in store.SETTLE.fetch_sync(params)])


def _finish_once(held: Sequence[Held]) -> list[ReportAnswer]:
    params = store.finish_params(
        (item.attempt_id, item.runner_id, item.is_cancelled) for item in held
    )
    return [answer_of(row.answer) for row in store.FINISH.fetch_sync(params)]


def _downstream_params(
    attempt_id: int, runner_id: int, group_id: int, task: NewTask, op_id: UUID
) -> Params:
    tags, labels = checked_tags(task)
    return {
        "attempt_id": attempt_id,
        "runner_id": runner_id,
        "group_id": group_id,
        "uuid": str(op_id),
        "priority": task.priority,
        "tags": [*tags],
        "labels": [*labels],
        "lane": lane_of(tags),
        "timeout_s": task.timeout_s,
        "spec": encode_spec(task.spec),
    }
