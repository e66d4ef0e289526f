"""What workers ask: the end of their attempt, leave to start, links, follow-up tasks, news.

A worker speaks only for the attempt it holds; every token is answered exactly once, at once or when
the outbox or the coordinator has answered.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from mitosis_protocol import ipc
from mitosis_protocol.enums import ReportAnswer
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.from_manager import ReportTask, ResolveResources
from mitosis_protocol.manager_reports import ReportTaskOp, SubmitOp, TaskReport, UploadOp
from mitosis_protocol.to_manager import Error, ResourcesResolved, TaskReportAck
from nodeagent.core import news, reports
from nodeagent.core.attempts import Attempt, Stage
from nodeagent.core.custody import (
    forget,
    let_go,
    refuse_for_now,
    refuse_gone,
    revoke,
    try_again,
)
from nodeagent.core.model import Model
from nodeagent.core.requests import Resolving, Submitting, Uploading
from nodeagent.core.workers import find_slot, report_crash, skip
from nodeagent.effects import Publish, ReadTaskState, ReplyIpc, SendFrame
from nodeagent.events import RequestToken, TaskRead, WorkerAsked

Waiting: TypeAlias = Uploading | Submitting | Resolving
_NO_LINK: Final = "no connection to the coordinator; try again"
_submit_decoder: Final = msgspec.json.Decoder(SubmitOp)


def on_asked(m: Model, event: WorkerAsked) -> None:
    handler = _HANDLERS.get(type(event.message))
    if handler is None:
        # Fetches and greetings are answered by the IPC thread.
        refuse_gone(m, event.token)
        return
    handler(m, event.token, event.message)


def on_task_read(m: Model, event: TaskRead) -> None:
    token = event.token
    if m.readers.pop(token, False) is False:
        return
    if event.trouble is not None:
        refuse_for_now(m, token, event.trouble)
    else:
        m.out.append(ReplyIpc(token, ipc.ReadReply(request_id=token.request_id, state=event.state)))


def on_report_ack(m: Model, request_id: int, message: TaskReportAck) -> None:
    purpose = m.requests.open.get(request_id)
    if not isinstance(purpose, Uploading | Submitting):
        return
    del m.requests.open[request_id]
    token = purpose.token
    if message.success and isinstance(purpose, Submitting):
        _done(m, token)
    elif message.success and message.url is not None:
        m.out.append(ReplyIpc(token, ipc.UploadReply(request_id=token.request_id, url=message.url)))
    elif message.answer is ReportAnswer.STALE_ATTEMPT:
        # The one it was asked for: the worker may have gone on to another.
        attempt = _held(m, token, purpose.attempt_id)
        refuse_gone(m, token)
        if attempt is not None:
            revoke(m, attempt)
    elif message.answer is ReportAnswer.RETRY_LATER:
        refuse_for_now(m, token, "the coordinator cannot now; try again")
    else:
        code = message.code or ErrorCode.REQUEST_INVALID
        _refuse(m, token, code, message.message or "the coordinator refused it")


def on_resolved(m: Model, message: ResourcesResolved) -> None:
    purpose = m.requests.open.get(message.request_id)
    if not isinstance(purpose, Resolving):
        return
    purpose.parts.extend(message.resources)
    if message.has_more:
        return
    del m.requests.open[message.request_id]
    token = purpose.token
    answer = ipc.ResolveReply(request_id=token.request_id, resources=purpose.parts)
    m.out.append(ReplyIpc(token, answer))


def on_failed(m: Model, purpose: Waiting, error: Error | None) -> None:
    if error is None:
        refuse_for_now(m, purpose.token, "the coordinator did not answer; try again")
    else:
        _refuse(m, purpose.token, error.code, error.message, is_retryable=error.is_retryable)


def _on_finish(m: Model, token: RequestToken, message: ipc.FinishTask) -> None:
    _run_now(m, token, message.attempt_id)
    attempt = _attempt_to_end(m, token, message.attempt_id)
    if attempt is None:
        return
    line = TaskReport(
        task_id=message.attempt_id,
        op="commit",
        op_id=m.draw_id(),
        exit_status=message.exit_status,
        msg=message.msg,
        outcome=message.outcome,
        worker_local_id=attempt.worker_id,
        result=message.facts or None,
    )
    reports.store(m, attempt, line, token)


def _on_crash(m: Model, token: RequestToken, message: ipc.CrashTask) -> None:
    _run_now(m, token, message.attempt_id)
    attempt = _attempt_to_end(m, token, message.attempt_id)
    if attempt is None:
        return
    line = TaskReport(
        task_id=message.attempt_id,
        op="failure",
        op_id=m.draw_id(),
        reason=message.reason[: reports.MAX_REASON_CHARS],
        signal=message.signal,
        worker_local_id=attempt.worker_id,
        result=message.facts or None,
    )
    reports.store(m, attempt, line, token)


def _on_drop(m: Model, token: RequestToken, message: ipc.DropTask) -> None:
    attempt = _attempt_to_end(m, token, message.attempt_id)
    if attempt is None:
        return
    _done(m, token)
    let_go(m, attempt)
    m.reports.starts.pop(attempt.attempt_id, None)
    if not message.has_started:
        try_again(m, attempt)
    elif m.is_forced:
        forget(m, attempt, "dropped")
    else:
        report_crash(m, attempt, "the worker left before the task was done", None)


def _on_start(m: Model, token: RequestToken, message: ipc.StartTask) -> None:
    attempt = _run_now(m, token, message.attempt_id)
    if attempt is None or attempt.stage is not Stage.HANDED or attempt.wish == "revoked":
        refuse_gone(m, token)
    elif attempt.wish == "cancelled":
        m.out.append(ReplyIpc(token, ipc.StartReply(request_id=token.request_id, may_run=False)))
    else:
        reports.ask_permit(m, attempt, token)


def _on_upload(m: Model, token: RequestToken, message: ipc.RequestUpload) -> None:
    if not _may_ask(m, token, message.attempt_id):
        return
    op = UploadOp(content_length=message.content_length, content_type=message.content_type)
    request_id = m.requests.ask(Uploading(token, message.attempt_id))
    m.out.append(
        SendFrame(
            ReportTask(
                request_id=request_id, task_id=message.attempt_id, op=ReportTaskOp(upload=op)
            )
        )
    )


def _on_submit(m: Model, token: RequestToken, message: ipc.SubmitFollowUp) -> None:
    attempt = _held(m, token, message.attempt_id)
    if attempt is None or not _may_ask(m, token, message.attempt_id):
        if attempt is None:
            refuse_gone(m, token)
        return
    try:
        op = _submit_decoder.decode(message.request)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        _refuse(m, token, ErrorCode.REQUEST_INVALID, f"not a task: {error}"[:512])
        return
    if attempt.follow_up is None or attempt.follow_up[0] != message.request:
        attempt.follow_up = (message.request, m.draw_id())
    op_id = attempt.follow_up[1]
    op = msgspec.structs.replace(op, op_id=op_id)
    request_id = m.requests.ask(Submitting(token, message.attempt_id, op_id))
    frame = ReportTask(
        request_id=request_id, task_id=message.attempt_id, op=ReportTaskOp(submit=op)
    )
    m.out.append(SendFrame(frame))


def _on_resolve(m: Model, token: RequestToken, message: ipc.ResolveResources) -> None:
    if not message.resources:
        m.out.append(ReplyIpc(token, ipc.ResolveReply(request_id=token.request_id, resources=[])))
    elif _may_ask(m, token, message.attempt_id):
        request_id = m.requests.ask(Resolving(token, []))
        frame = ResolveResources(
            request_id=request_id, resources=message.resources, task_id=message.attempt_id
        )
        m.out.append(SendFrame(frame))


def _on_read(m: Model, token: RequestToken, message: ipc.ReadTask) -> None:
    if _held(m, token, message.attempt_id) is None:
        refuse_gone(m, token)
    else:
        m.readers[token] = None
        m.out.append(ReadTaskState(token, message.task_uuid))


def _on_news(m: Model, token: RequestToken, message: ipc.NoteEvents) -> None:
    events = [event for event in message.events if _held(m, token, event.task_id) is not None]
    news.take(m, events)
    _done(m, token)


def _on_heartbeat(m: Model, token: RequestToken, message: ipc.Heartbeat) -> None:
    """Control messages are published once; a worker that missed one is told again."""
    _done(m, token)
    if message.attempt_id is None:
        return
    attempt = _held(m, token, message.attempt_id)
    if attempt is None:
        m.out.append(Publish(ipc.CancelTask(attempt_id=message.attempt_id, why="revoked")))
    elif attempt.wish is not None:
        m.out.append(Publish(ipc.CancelTask(attempt_id=message.attempt_id, why=attempt.wish)))


_HANDLERS: Final[Mapping[type[ipc.FromWorker], Callable[[Model, RequestToken, Any], None]]] = {
    ipc.FinishTask: _on_finish,
    ipc.CrashTask: _on_crash,
    ipc.DropTask: _on_drop,
    ipc.StartTask: _on_start,
    ipc.RequestUpload: _on_upload,
    ipc.SubmitFollowUp: _on_submit,
    ipc.ResolveResources: _on_resolve,
    ipc.ReadTask: _on_read,
    ipc.NoteEvents: _on_news,
    ipc.Heartbeat: _on_heartbeat,
}


def _held(m: Model, token: RequestToken, attempt_id: int) -> Attempt | None:
    """In its hands; the services of a worker are heard in any order, so what it was given ahead
    may be what it runs already.
    """
    slot = find_slot(m, token.worker)
    if slot is None:
        return None
    for attempt in (slot.attempt, slot.ahead):
        if attempt is not None and attempt.attempt_id == attempt_id:
            return attempt
    return None


def _run_now(m: Model, token: RequestToken, attempt_id: int) -> Attempt | None:
    """The attempt in its hands that it runs. Of the one before it has then said nothing."""
    attempt = _held(m, token, attempt_id)
    slot = find_slot(m, token.worker)
    if attempt is not None and slot is not None and slot.ahead is attempt:
        skip(m, slot)
    return attempt


def _attempt_to_end(m: Model, token: RequestToken, attempt_id: int) -> Attempt | None:
    """The attempt that a last word is about; None if the token has been dealt with."""
    attempt = _held(m, token, attempt_id)
    if attempt is not None and attempt.stage is Stage.HANDED:
        permit = m.reports.permits.pop(attempt_id, None)
        if permit is not None:
            m.reports.to_permit.pop(attempt_id, None)
            refuse_gone(m, permit)
        if attempt.wish != "revoked":
            return attempt
        forget(m, attempt, "revoked")
        _done(m, token)
    else:
        _answer_again(m, token, attempt_id)
    return None


def _answer_again(m: Model, token: RequestToken, attempt_id: int) -> None:
    """A last word on what this worker has said it about before; or on what was never its own."""
    attempt = m.ledger.attempts.get(attempt_id)
    is_its_own = (
        attempt is not None
        and attempt.op_id is not None
        and attempt.worker_id == token.worker.local_id
        and find_slot(m, token.worker) is not None
    )
    if attempt is None or not is_its_own:
        refuse_gone(m, token)
    elif attempt.stage is Stage.STORING:
        attempt.tokens.append(token)
    else:
        _done(m, token)


def _may_ask(m: Model, token: RequestToken, attempt_id: int) -> bool:
    """Otherwise the token has been answered."""
    if _held(m, token, attempt_id) is None:
        refuse_gone(m, token)
        return False
    if not m.session.is_welcome:
        refuse_for_now(m, token, _NO_LINK)
        return False
    return True


def _done(m: Model, token: RequestToken) -> None:
    m.out.append(ReplyIpc(token, ipc.Done(request_id=token.request_id)))


def _refuse(
    m: Model, token: RequestToken, code: ErrorCode, message: str, *, is_retryable: bool = False
) -> None:
    answer = ipc.Refused(
        request_id=token.request_id, code=code, message=message, is_retryable=is_retryable
    )
    m.out.append(ReplyIpc(token, answer))
