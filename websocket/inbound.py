"""What each message of a manager makes the coordinator do: one short function, one service.

HANDLERS maps every member of FromManager to its handler; a handler returns the messages that go
back on the same socket. Handlers of engagements are in websocket.engagements.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast
from uuid import uuid4

import msgspec

from core.errors import AuthenticationFailed, DomainError, InvalidInput, StaleAttempt, Superseded
from mitosis_protocol.durations import format_duration
from mitosis_protocol.enums import ReportAnswer
from mitosis_protocol.from_manager import (
    AbortTask,
    FetchTask,
    FetchTasks,
    FromManager,
    FromManagerMessage,
    Heartbeat,
    Hello,
    ReportFailure,
    ReportTask,
    ReportTasks,
    ResolveResources,
    ReturnTasks,
    SuiteCompleted,
    SuiteFailed,
    TaskEvents,
)
from mitosis_protocol.limits import MAX_FRAME_BYTES
from mitosis_protocol.manager_reports import CancelOp, CommitOp, FinishOp, ReportTaskOp
from mitosis_protocol.specs import TaskSpec
from mitosis_protocol.suites import ResourceLimits
from mitosis_protocol.to_manager import (
    OfferedTask,
    ReportsAccepted,
    ResourcesResolved,
    TaskAvailable,
    TaskReportAck,
    TasksAvailable,
    ToManager,
)
from tasks.dispatcher import Settled
from tasks.rows import ClaimRow
from tasks.services.manager_claims import ManagerClaim, claim_tasks
from tasks.services.manager_events import accept_events
from tasks.services.manager_reports import (
    abort_task,
    accept_reports,
    commit_attempt,
    finish_attempt,
    issue_upload,
    report_failure,
    return_tasks,
    submit_follow_up,
)
from tasks.services.manager_resources import resolve_resources
from websocket import engagements
from websocket.engagements import ProtocolBroken as ProtocolBroken  # noqa: PLC0414 - re-export
from websocket.peer import Peer

Answers = Sequence[ToManager]
Handler = Callable[[Peer, Any], Awaitable[Answers]]
Message = TypeVar("Message", bound=FromManagerMessage)

_TAKEN: Final = frozenset({ReportAnswer.OK, ReportAnswer.OK_DUPLICATE})
# Room for the members around a spec, and for the frame around the tasks.
_TASK_OVERHEAD: Final = 1024
_TASKS_ROOM: Final = MAX_FRAME_BYTES - 4096
_LINKS_PER_FRAME: Final = 128  # a signed link is about 1 KiB


async def on_fetch_task(peer: Peer, message: FetchTask) -> Answers:
    rows = await claim_tasks(_claim(peer, message, want=1))
    task = _offer(rows[0]) if rows else None
    return [TaskAvailable(request_id=message.request_id, task=task)]


async def on_fetch_tasks(peer: Peer, message: FetchTasks) -> Answers:
    rows = await claim_tasks(_claim(peer, message, want=message.max_tasks))
    parts = _split(rows)
    return [
        TasksAvailable(
            request_id=message.request_id,
            tasks=[_offer(row) for row in part],
            has_more=at < len(parts) - 1,
        )
        for at, part in enumerate(parts)
    ]


async def on_report_tasks(peer: Peer, message: ReportTasks) -> Answers:
    await peer.noted()
    results = await accept_reports(peer.manager_id, message.reports)
    return [ReportsAccepted(request_id=message.request_id, results=results)]


async def on_report_task(peer: Peer, message: ReportTask) -> Answers:
    """A client of the RFC knows one answer only, so refusals are acks without success."""
    try:
        return [await _operate(peer, message)]
    except (Superseded, AuthenticationFailed):
        raise
    except DomainError as error:
        return [
            TaskReportAck(
                request_id=message.request_id,
                success=False,
                answer=_answer_of(error),
                code=error.code,
                message=error.msg,
            )
        ]


async def on_report_failure(peer: Peer, message: ReportFailure) -> Answers:
    return _settled(message.request_id, await report_failure(peer.manager_id, message))


async def on_abort_task(peer: Peer, message: AbortTask) -> Answers:
    return _settled(message.request_id, await abort_task(peer.manager_id, message))


async def on_return_tasks(peer: Peer, message: ReturnTasks) -> Answers:
    results = await return_tasks(peer.manager_id, message.task_ids)
    return [ReportsAccepted(request_id=message.request_id, results=results)]


async def on_task_events(peer: Peer, message: TaskEvents) -> Answers:
    with peer.noting():
        results = await accept_events(peer.manager_id, message.events)
    if message.request_id is None:
        return []
    return [ReportsAccepted(request_id=message.request_id, results=results)]


async def on_resolve_resources(peer: Peer, message: ResolveResources) -> Answers:
    found = await resolve_resources(peer.manager_id, message)
    starts = range(0, len(found), _LINKS_PER_FRAME)
    return [
        ResourcesResolved(
            request_id=message.request_id,
            resources=found[start : start + _LINKS_PER_FRAME],
            has_more=start + _LINKS_PER_FRAME < len(found),
        )
        for start in starts
    ]


HANDLERS: Final[Mapping[type[FromManager], Handler]] = {
    Hello: engagements.on_hello,
    Heartbeat: engagements.on_heartbeat,
    SuiteCompleted: engagements.on_suite_completed,
    SuiteFailed: engagements.on_suite_failed,
    FetchTask: on_fetch_task,
    FetchTasks: on_fetch_tasks,
    ReportTask: on_report_task,
    ReportTasks: on_report_tasks,
    ReportFailure: on_report_failure,
    AbortTask: on_abort_task,
    ReturnTasks: on_return_tasks,
    TaskEvents: on_task_events,
    ResolveResources: on_resolve_resources,
}


async def _operate(peer: Peer, message: ReportTask) -> TaskReportAck:
    op = message.op
    if isinstance(op, str):
        op = _spelt_out(peer, message.task_id, op)
    if op.commit is not None:
        return await _commit(peer, message, op.commit)
    if op.finish is None and op.cancel is None:
        return await _issue(peer, message, op)
    if op.finish is not None:
        peer.remember_exit(message.task_id, op.finish.exit_code)
    return await _finish(peer, message, is_cancelled=op.cancel is not None)


async def _issue(peer: Peer, message: ReportTask, op: ReportTaskOp) -> TaskReportAck:
    if op.upload is not None:
        url = await issue_upload(peer.manager_id, message.task_id, op.upload)
        return TaskReportAck(request_id=message.request_id, success=True, url=url)
    if op.submit is None:
        raise AssertionError("a decoded operation is one of these")
    made = await submit_follow_up(peer.manager_id, message.task_id, op.submit)
    return TaskReportAck(request_id=message.request_id, success=made is not None, task_uuid=made)


async def _finish(peer: Peer, message: ReportTask, *, is_cancelled: bool) -> TaskReportAck:
    answer = await finish_attempt(peer.manager_id, message.task_id, is_cancelled=is_cancelled)
    return TaskReportAck(request_id=message.request_id, success=answer in _TAKEN, answer=answer)


async def _commit(peer: Peer, message: ReportTask, op: CommitOp) -> TaskReportAck:
    settled = await commit_attempt(peer.manager_id, message.task_id, op)
    if settled.answer is not ReportAnswer.RETRY_LATER:
        peer.forget_exit(message.task_id)
    [ack] = _settled(message.request_id, settled)
    return ack


def _spelt_out(peer: Peer, attempt_id: int, op: str) -> ReportTaskOp:
    """The RFC's operations without a body, with the body they stand for."""
    code = peer.recall_exit(attempt_id)
    if op == "Finish":
        return ReportTaskOp(finish=FinishOp(exit_code=code or 0))
    if op == "Cancel":
        return ReportTaskOp(cancel=CancelOp())
    if code is None:
        raise InvalidInput("op: Commit needs its exit_status when no Finish told it before")
    # As a raw wait status: negative is the signal that ended it, as Python counts.
    status = (code & 0xFF) << 8 if code >= 0 else -code & 0x7F
    return ReportTaskOp(commit=CommitOp(exit_status=status))


def _settled(request_id: int | None, settled: Settled) -> list[TaskReportAck]:
    if request_id is None:
        return []
    return [
        TaskReportAck(
            request_id=request_id,
            success=settled.answer in _TAKEN,
            answer=settled.answer,
            action=settled.action,
        )
    ]


def _answer_of(error: DomainError) -> ReportAnswer:
    if error.retryable:
        return ReportAnswer.RETRY_LATER
    return ReportAnswer.STALE_ATTEMPT if isinstance(error, StaleAttempt) else ReportAnswer.INVALID


def _claim(peer: Peer, message: FetchTask | FetchTasks, *, want: int) -> ManagerClaim:
    return ManagerClaim(
        runner_id=peer.manager_id,
        session_epoch=peer.session_epoch,
        claim_id=message.claim_id or uuid4(),
        want=want,
        assignment_id=message.assignment_id,
    )


def _offer(row: ClaimRow) -> OfferedTask:
    if row.attempt_id is None or row.uuid is None or row.spec is None:
        raise AssertionError("a claim row with an attempt has all its columns")
    return OfferedTask(
        task_id=row.attempt_id,
        task_uuid=row.uuid,
        # As it was stored: decoding it here only to encode it again would double the work.
        spec=cast("TaskSpec", msgspec.Raw(row.spec.encode())),
        priority=row.priority or 0,
        attempt=row.attempt or 1,
        timeout=format_duration(row.timeout_s or 0),
        upstream_task_uuid=row.upstream_task_uuid,
        limits=cast("ResourceLimits", msgspec.Raw((row.limits or "null").encode())),
        max_failures=row.max_failures or 0,
        is_repeat=bool(row.is_repeat),
    )


def _split(rows: Sequence[ClaimRow]) -> list[list[ClaimRow]]:
    """Parts that fit a frame each; one empty part for an empty claim."""
    parts: list[list[ClaimRow]] = [[]]
    room = _TASKS_ROOM
    for row in rows:
        size = len((row.spec or "").encode()) + len(row.limits or "") + _TASK_OVERHEAD
        if parts[-1] and size > room:
            parts.append([])
            room = _TASKS_ROOM
        parts[-1].append(row)
        room -= size
    return parts
