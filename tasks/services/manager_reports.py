"""Reports of managers: batches of lines, single operations, crashes, returned tasks.

Called by the manager socket. Lines and uploads go through the dispatcher, so those of many managers
share statements; each is answered for itself and may be repeated. Downstream tasks are rare and
run in a thread.
"""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final
from uuid import UUID, uuid4

import msgspec

from accounts.ceilings import check_priority
from core.errors import InvalidInput, NotFound, StaleAttempt
from managers.services.session_threads import in_thread
from mitosis_protocol.durations import parse_duration
from mitosis_protocol.enums import ArtifactContentType, ReportAnswer
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.from_manager import AbortTask, ReportFailure
from mitosis_protocol.manager_reports import CommitOp, SubmitOp, TaskReport, UploadOp
from mitosis_protocol.to_manager import ReportResult
from tasks.dispatcher import Held, Settled, get_dispatcher
from tasks.models import ActiveTask
from tasks.new_task import NewTask, refuse_node_call
from tasks.rows import Report
from tasks.services import attempt_uploads
from tasks.services.failure import abort_report, failure_report, release_report
from tasks.services.manager_attempts import get_held_task
from tasks.services.report import commit_report, legacy_op_id, settle, start, submit_downstream
from tasks.services.suite_surplus import tell_returned

_FINISHES: Final = frozenset({"finish", "cancel"})
_encoder: Final = msgspec.json.Encoder()


async def accept_reports(runner_id: int, lines: Sequence[TaskReport]) -> list[ReportResult]:
    """One result per line, in order. Starts first, ends last: a frame may hold both of one task."""
    results: dict[int, ReportResult] = {}
    starts = [(at, line) for at, line in enumerate(lines) if line.op == "start"]
    started = await start([Held(line.task_id, runner_id) for _, line in starts])
    for (at, line), done in zip(starts, started, strict=True):
        results[at] = ReportResult(
            task_id=line.task_id, answer=done.answer, is_cancelled=done.is_cancelled
        )
    finishes = [(at, line) for at, line in enumerate(lines) if line.op in _FINISHES]
    finished = await get_dispatcher().finishes.submit_all(
        Held(line.task_id, runner_id, is_cancelled=line.op == "cancel") for _, line in finishes
    )
    for (at, line), answer in zip(finishes, finished, strict=True):
        results[at] = ReportResult(task_id=line.task_id, answer=answer)
    ends = [(at, line) for at, line in enumerate(lines) if at not in results]
    settled = await settle([_report(runner_id, line) for _, line in ends])
    for (at, line), end in zip(ends, settled, strict=True):
        results[at] = ReportResult(task_id=line.task_id, answer=end.answer, action=end.action)
    return [results[at] for at in range(len(lines))]


async def return_tasks(runner_id: int, attempt_ids: Sequence[int]) -> list[ReportResult]:
    """Unstarted tasks back to the queue, free of charge."""
    settled = await settle(
        [
            release_report(
                attempt_id=attempt_id,
                runner_id=runner_id,
                op_id=legacy_op_id(attempt_id, "release"),
            )
            for attempt_id in attempt_ids
        ]
    )
    results = [
        ReportResult(task_id=attempt_id, answer=one.answer, action=one.action)
        for attempt_id, one in zip(attempt_ids, settled, strict=True)
    ]
    if free := [one.task_id for one in results if one.answer is ReportAnswer.OK]:
        await tell_returned(runner_id, free)
    return results


async def finish_attempt(runner_id: int, attempt_id: int, *, is_cancelled: bool) -> ReportAnswer:
    held = Held(attempt_id, runner_id, is_cancelled=is_cancelled)
    return await get_dispatcher().finishes.submit(held)


async def commit_attempt(runner_id: int, attempt_id: int, op: CommitOp) -> Settled:
    report = commit_report(
        attempt_id=attempt_id,
        runner_id=runner_id,
        exit_status=op.exit_status,
        msg=op.msg,
        outcome=op.outcome,
        op_id=op.op_id,
    )
    [settled] = await settle([report])
    return settled


async def report_failure(runner_id: int, message: ReportFailure) -> Settled:
    """A death in the manager's house: charged here, whatever it counted itself."""
    attempt_id = message.task_id
    if attempt_id is None:
        attempt_id = (await get_held_task(runner_id, message.task_uuid)).attempt_id
    op_id = message.op_id or legacy_op_id(attempt_id, f"failure:{message.failure_count}")
    report = failure_report(
        attempt_id=attempt_id,
        runner_id=runner_id,
        op_id=op_id,
        reason=message.error_message,
        died_by=message.signal,
        worker_id=message.worker_local_id,
    )
    [settled] = await settle([report])
    return settled


async def abort_task(runner_id: int, message: AbortTask) -> Settled:
    """The manager gives the task up; its deaths were reported one by one."""
    attempt_id = message.task_id
    if attempt_id is None:
        attempt_id = (await get_held_task(runner_id, message.task_uuid)).attempt_id
    report = abort_report(
        attempt_id=attempt_id,
        runner_id=runner_id,
        op_id=message.op_id or legacy_op_id(attempt_id, "abort"),
        reason=message.reason,
        charge=False,
    )
    [settled] = await settle([report])
    return settled


async def issue_upload(runner_id: int, attempt_id: int, op: UploadOp) -> str:
    """A link to PUT an archive to. Raises NotFound, StaleAttempt, QuotaExceeded."""
    content_type = op.content_type or _content_type_of(op.artifact_path or "")
    issued = await attempt_uploads.issue_upload(
        attempt_id=attempt_id,
        runner_id=runner_id,
        content_type=content_type,
        size=op.content_length,
    )
    return issued.url


async def submit_follow_up(runner_id: int, attempt_id: int, op: SubmitOp) -> UUID | None:
    """A downstream task in the suite of its upstream; its uuid, or None if it was refused."""
    try:
        timeout_s = parse_duration(op.timeout)
    except InvalidValue as error:
        raise InvalidInput(f"timeout: {error}") from error
    refuse_node_call(op.task_spec)
    task = NewTask(
        spec=op.task_spec,
        timeout_s=timeout_s,
        tags=op.tags,
        labels=op.labels,
        priority=op.priority,
    )
    group_id = await in_thread(_group_of, runner_id, attempt_id, op)
    # On this wire the command's end is said by the commit alone, and a follow-up comes before it.
    await start([Held(attempt_id, runner_id)])
    await finish_attempt(runner_id, attempt_id, is_cancelled=False)
    made = await submit_downstream(
        attempt_id=attempt_id,
        runner_id=runner_id,
        group_id=group_id,
        task=task,
        op_id=op.op_id or uuid4(),
    )
    is_taken = made.answer in {ReportAnswer.OK, ReportAnswer.OK_DUPLICATE}
    return made.uuid if is_taken else None


def _report(runner_id: int, line: TaskReport) -> Report:
    op_id = line.op_id or legacy_op_id(line.task_id, line.op)
    if line.op == "failure":
        return failure_report(
            attempt_id=line.task_id,
            runner_id=runner_id,
            op_id=op_id,
            reason=line.reason,
            died_by=line.signal,
            worker_id=line.worker_local_id,
        )
    if line.op == "abort":
        return abort_report(
            attempt_id=line.task_id,
            runner_id=runner_id,
            op_id=op_id,
            reason=line.reason,
            charge=False,
        )
    report = commit_report(
        attempt_id=line.task_id,
        runner_id=runner_id,
        exit_status=line.exit_status,
        msg=line.msg,
        outcome=line.outcome,
        op_id=op_id,
    )
    result = None if line.result is None else _encoder.encode(line.result).decode()
    return msgspec.structs.replace(
        report, reason=line.reason or None, result=result, worker_id=line.worker_local_id
    )


def _content_type_of(path: str) -> ArtifactContentType:
    name = PurePosixPath(path).name.partition(".")[0]
    try:
        return ArtifactContentType.parse(name)
    except InvalidValue as error:
        raise InvalidInput(f"artifact_path: {error}") from error


def _group_of(runner_id: int, attempt_id: int, op: SubmitOp) -> int:
    rows = ActiveTask.objects.select_related("group")
    task = rows.filter(runner_id=runner_id, attempt_id=attempt_id).first()
    if task is None:
        raise StaleAttempt("This manager does not hold the task (any more)")
    if task.group.name != op.group_name:
        raise NotFound("Group not found")
    check_priority(task.group, op.priority)
    return task.group_id
