"""Lines for the coordinator: into the outbox, out in frames, until each is settled.

Results are sent only from the outbox and repeated with the same op_id until the answer is anything
but `retry_later`. Starts are best effort: one waits for the result that would spare it while others
wait for the worker.
"""

from itertools import islice, takewhile
from typing import Final
from uuid import UUID

from mitosis_protocol import ipc
from mitosis_protocol.enums import Outcome, ReportAnswer
from mitosis_protocol.from_manager import ReportTasks
from mitosis_protocol.limits import MAX_FRAME_BYTES, MAX_REPORTS_PER_FRAME
from mitosis_protocol.manager_reports import TaskReport
from mitosis_protocol.to_manager import ReportResult
from nodeagent.core import news
from nodeagent.core.attempts import Attempt, Stage
from nodeagent.core.custody import (
    cancel,
    forget,
    give_back,
    let_go,
    refuse_for_now,
    refuse_permit,
    revoke,
    try_again,
)
from nodeagent.core.model import FOREVER, Model
from nodeagent.core.requests import Reporting
from nodeagent.effects import ForgetResults, ReplyIpc, ScheduleFlush, StoreResult, SyncAndSend
from nodeagent.events import RequestToken, ResultRefused, ResultStored

FULL: Final = 64  # lines that are sent at once: a statement gets no cheaper per line beyond
# One frame at a time unless lines pile up: the coordinator's limit is on frames, and whatever
# comes while one is away shares the next.
MAX_FRAMES: Final = 2
MAX_REASON_CHARS: Final = 1024
_LINE_BYTES: Final = 512  # ids and the like; facts and reasons come on top
_FACT_BYTES: Final = 96
_FRAME_ROOM: Final = MAX_FRAME_BYTES * 3 // 4
_TAKEN: Final = (ReportAnswer.OK, ReportAnswer.OK_DUPLICATE)


def note_start(m: Model, attempt: Attempt) -> None:
    m.reports.starts[attempt.attempt_id] = m.now + _patience_s(m)
    schedule(m)


def ask_permit(m: Model, attempt: Attempt, token: RequestToken) -> None:
    """The worker waits until the coordinator knows that the attempt starts."""
    reports, attempt_id = m.reports, attempt.attempt_id
    refuse_permit(m, attempt_id)
    reports.starts.pop(attempt_id, None)
    reports.permits[attempt_id] = token
    reports.to_permit[attempt_id] = None
    flush(m)


def store(m: Model, attempt: Attempt, report: TaskReport, token: RequestToken | None) -> None:
    """The last word on an attempt; the worker is released when it is safe."""
    m.ledger.move(attempt, Stage.STORING)
    attempt.op_id, attempt.report = report.op_id, report
    attempt.stop_by = None
    m.reports.starts.pop(attempt.attempt_id, None)
    slot = None if attempt.worker_id is None else m.slots.get(attempt.worker_id)
    if slot is not None and slot.attempt is attempt and slot.ahead is not None:
        # It does not wait: by now it runs what it was given ahead.
        slot.has_worked = slot.has_worked or report.op == "commit"
        let_go(m, attempt)
    if token is not None:
        attempt.tokens.append(token)
    if report.op_id is not None:
        m.reports.unstored[report.op_id] = attempt
    m.out.append(StoreResult(report))


def on_stored(m: Model, event: ResultStored) -> None:
    reports, op_id = m.reports, event.op_id
    attempt = reports.unstored.pop(op_id, None)
    if attempt is None or attempt.report is None:
        return
    reports.refused.pop(op_id, None)
    out = m.out
    for token in attempt.tokens:
        out.append(ReplyIpc(token, ipc.Done(request_id=token.request_id)))
    attempt.tokens.clear()
    reports.lines[op_id] = attempt.report
    m.ledger.move(attempt, Stage.FINISHED)
    if attempt.worker_id is not None:
        slot = m.slots.get(attempt.worker_id)
        if slot is not None and slot.attempt is attempt:
            slot.has_worked = slot.has_worked or attempt.report.op == "commit"
            let_go(m, attempt)
    if attempt.wish == "revoked":
        forget(m, attempt, "revoked")
        return
    reports.queue[op_id] = None
    schedule(m)


def on_refused(m: Model, event: ResultRefused) -> None:
    attempt = m.reports.unstored.get(event.op_id)
    if attempt is None:
        return
    slot = None if attempt.worker_id is None else m.slots.get(attempt.worker_id)
    if not attempt.tokens or slot is None or slot.attempt is not attempt:
        # Nobody would bring it again: its worker is dead.
        m.reports.refused[event.op_id] = None
        m.reports.retry_at = min(m.reports.retry_at, m.now + m.settings.retry_s)
        return
    del m.reports.unstored[event.op_id]
    for token in attempt.tokens:
        refuse_for_now(m, token, "the result could not be stored; try again")
    attempt.tokens.clear()
    attempt.op_id = attempt.report = None
    m.ledger.move(attempt, Stage.HANDED)


def schedule(m: Model) -> None:
    """Send soon, or now if there is enough."""
    reports = m.reports
    if len(reports.queue) >= FULL:
        flush(m)
    elif not reports.is_flush_scheduled:
        reports.is_flush_scheduled = True
        m.out.append(ScheduleFlush(_patience_s(m)))


def flush(m: Model) -> None:
    """As much as fits a frame; the rest when an answer makes room."""
    reports = m.reports
    if not m.session.is_welcome:
        return
    waiting = len(reports.queue) + _due_starts(m)
    is_enough = waiting >= FULL or bool(reports.to_permit)
    has_room = not reports.in_flight or (reports.in_flight < MAX_FRAMES and is_enough)
    if has_room and (waiting or reports.to_permit):
        _send(m)
    if reports.starts and not reports.in_flight:
        schedule(m)  # those that were too young; an answer sees to them otherwise


def _send(m: Model) -> None:
    # The last output of a task belongs before its result: afterwards nobody takes it.
    news.send(m)
    lines = _take(m)
    request_id = m.requests.ask(Reporting(lines))
    m.reports.in_flight += 1
    m.out.append(SyncAndSend(ReportTasks(request_id=request_id, reports=lines)))


def _patience_s(m: Model) -> float:
    is_busy = m.ledger.shelved_count > 0
    return m.settings.busy_flush_s if is_busy else m.settings.flush_s


def _due_starts(m: Model) -> int:
    """The first so many have waited long enough for a result that would spare them."""
    return sum(1 for _ in takewhile(lambda due: due <= m.now, m.reports.starts.values()))


def _take(m: Model) -> list[TaskReport]:
    reports = m.reports
    starting = [*reports.to_permit, *islice(reports.starts, _due_starts(m))]
    lines = [
        TaskReport(task_id=attempt_id, op="start")
        for attempt_id in starting[:MAX_REPORTS_PER_FRAME]
    ]
    for line in lines:
        reports.to_permit.pop(line.task_id, None)
        reports.starts.pop(line.task_id, None)
    room = _FRAME_ROOM - len(lines) * _LINE_BYTES
    while reports.queue and len(lines) < MAX_REPORTS_PER_FRAME:
        op_id = next(iter(reports.queue))
        line = reports.lines[op_id]
        room -= _LINE_BYTES + 4 * len(line.reason) + _FACT_BYTES * len(line.result or ())
        if room < 0 and lines:
            break
        del reports.queue[op_id]
        lines.append(line)
    return lines


def on_accepted(m: Model, purpose: Reporting, results: list[ReportResult]) -> None:
    m.reports.in_flight -= 1
    settled: list[UUID] = []
    for line, result in zip(purpose.lines, results, strict=False):
        if line.op == "start":
            _start_answered(m, line.task_id, result)
        elif result.answer is ReportAnswer.RETRY_LATER:
            _later(m, line)
        elif line.op_id is not None and m.reports.lines.pop(line.op_id, None) is not None:
            settled.append(line.op_id)
            _decide(m, line, result)
    for line in purpose.lines[len(results) :]:
        _again(m, line)
    if settled:
        m.out.append(ForgetResults(tuple(settled)))
        m.supply.dry_until = 0.0  # a cap may have room now, a successor may be ready
    if not m.reports.is_flush_scheduled:
        flush(m)  # what came meanwhile has waited long enough


def settle_by_word(m: Model, attempt: Attempt) -> None:
    """An inventory was answered: its report was taken."""
    if attempt.stage is Stage.FINISHED and attempt.report is not None:
        _count(m, attempt, attempt.report)
        forget(m, attempt, "settled")
    else:
        revoke(m, attempt)


def on_failed(m: Model, purpose: Reporting, *, is_refused: bool = False) -> None:
    """No answer, or an error instead: everything is said again."""
    m.reports.in_flight -= 1
    for line in purpose.lines:
        if is_refused and line.op != "start":
            _later(m, line)
        else:
            _again(m, line)


def resend(m: Model) -> None:
    """After a welcome: whatever has no answer goes out again."""
    reports = m.reports
    reports.later.clear()
    reports.queue = dict.fromkeys(reports.lines)
    reports.to_permit = dict.fromkeys(reports.permits)
    waiting = {slot.ahead for slot in m.slots.values()}
    for attempt in m.ledger.in_stage(Stage.HANDED):
        is_begun = attempt not in waiting and attempt.attempt_id not in reports.permits
        if is_begun and attempt.wish is None:
            reports.starts[attempt.attempt_id] = m.now
    flush(m)


def tick(m: Model) -> None:
    reports = m.reports
    if m.now >= reports.retry_at:
        reports.retry_at = FOREVER
        reports.queue.update(reports.later)
        reports.later.clear()
        for op_id in reports.refused:
            report = reports.unstored[op_id].report
            if report is not None:
                m.out.append(StoreResult(report))
        reports.refused.clear()
    if not reports.is_flush_scheduled:
        flush(m)


def _start_answered(m: Model, attempt_id: int, result: ReportResult) -> None:
    attempt = m.ledger.attempts.get(attempt_id)
    if attempt is None or attempt.stage is not Stage.HANDED:
        return
    if result.answer is ReportAnswer.RETRY_LATER:
        _start_again(m, attempt)
    elif result.answer not in _TAKEN:
        revoke(m, attempt)
    elif result.is_cancelled:
        cancel(m, attempt)
    else:
        token = m.reports.permits.pop(attempt_id, None)
        if token is not None:
            answer = ipc.StartReply(request_id=token.request_id, may_run=attempt.wish is None)
            m.out.append(ReplyIpc(token, answer))


def _decide(m: Model, line: TaskReport, result: ReportResult) -> None:
    attempt = m.ledger.attempts.get(line.task_id)
    if attempt is None or attempt.op_id != line.op_id:
        return
    answer = result.answer
    if line.op == "commit":
        _count(m, attempt, line)
        forget(m, attempt, "settled")
    elif answer is ReportAnswer.OK and result.action == "keep":
        try_again(m, attempt)
    elif answer is ReportAnswer.OK_DUPLICATE and attempt.item is not None:
        # The answer with the decision was lost; the next inventory tells whether it is still ours.
        attempt.op_id = attempt.report = None
        m.ledger.move(attempt, Stage.DECIDING)
        m.session.is_beat_due = True
        if attempt.wish == "cancelled":
            # Said while the report was under way; nobody will say it a second time.
            give_back(m, attempt)
    else:
        if result.action == "end":
            _count(m, attempt, line)
        forget(m, attempt, "settled" if answer in _TAKEN else "revoked")


def _count(m: Model, attempt: Attempt, line: TaskReport) -> None:
    good = line.op == "commit" and (
        line.outcome is Outcome.SUCCEEDED or (line.outcome is None and line.exit_status == 0)
    )
    m.completed_count += good
    m.failed_count += not good
    if attempt.home is not None:
        attempt.home.completed_count += good
        attempt.home.failed_count += not good


def _later(m: Model, line: TaskReport) -> None:
    if line.op_id in m.reports.lines:
        m.reports.later[line.op_id] = None
        m.reports.retry_at = min(m.reports.retry_at, m.now + m.settings.retry_s)


def _again(m: Model, line: TaskReport) -> None:
    if line.op == "start":
        attempt = m.ledger.attempts.get(line.task_id)
        if attempt is not None and attempt.stage is Stage.HANDED:
            _start_again(m, attempt)
    elif line.op_id in m.reports.lines:
        m.reports.queue[line.op_id] = None


def _start_again(m: Model, attempt: Attempt) -> None:
    if attempt.wish is not None:
        return
    if attempt.attempt_id in m.reports.permits:
        m.reports.to_permit[attempt.attempt_id] = None
    else:
        m.reports.starts[attempt.attempt_id] = m.now
