"""The end of an engagement: workers leave, slots are released, the cleanup runs, word is sent.

Called by nodeagent.core.engagement. Letters about a suite go out one at a time and in order: a
completion that overtook a failure would hide it from the coordinator.
"""

import msgspec

from mitosis_protocol import ipc
from mitosis_protocol.from_manager import SuiteCompleted, SuiteFailed
from mitosis_protocol.limits import MAX_ERROR_MESSAGE_CHARS
from mitosis_protocol.to_manager import SuiteReportAck, TaskSuiteSpec
from nodeagent.core import workers
from nodeagent.core.attempts import Stage
from nodeagent.core.model import Engagement, Model, Step, Trouble
from nodeagent.core.requests import Writing
from nodeagent.effects import Publish, ReleaseSlots, RunHook, SendFrame, SettleDebt
from nodeagent.events import HookDone, HookPhase


def clear(m: Model, engaged: Engagement) -> None:
    engaged.step = Step.CLEARING
    m.session.is_beat_due = True
    if m.slots:
        workers.dismiss_all(m)
        m.out.append(Publish(ipc.Shutdown(graceful=True)))


def release(m: Model, engaged: Engagement) -> None:
    if engaged.has_slots:
        engaged.step = Step.RELEASING
        m.out.append(ReleaseSlots(engaged.debt_id))
    else:
        clean(m, engaged)


def clean(m: Model, engaged: Engagement) -> None:
    if engaged.is_prepared and engaged.suite.env_cleanup is not None:
        engaged.step = Step.CLEANING
        run_hook(m, engaged.debt_id, "cleanup", engaged.suite)
        return
    if engaged.is_owed:
        engaged.is_owed = False
        m.out.append(SettleDebt(engaged.debt_id))
    _report(m, engaged, None)


def cleaned(m: Model, engaged: Engagement, event: HookDone) -> None:
    engaged.is_owed = False
    m.out.append(SettleDebt(engaged.debt_id))
    _report(m, engaged, None if event.kind == "ok" else event)


def _report(m: Model, engaged: Engagement, failure: HookDone | None) -> None:
    engaged.step = Step.REPORTING
    engaged.deadline = m.now + m.settings.settle_s
    suite_uuid = engaged.suite.uuid
    if failure is None:
        engaged.letters.append(
            SuiteCompleted(suite_uuid=suite_uuid, tasks_completed=0, tasks_failed=0)
        )
        return
    m.warn("cleanup.degraded", suite=str(suite_uuid), kind=failure.kind, code=failure.exit_code)
    engaged.letters.append(
        SuiteFailed(
            suite_uuid=suite_uuid,
            phase="cleanup",
            exit_code=failure.exit_code,
            stderr_tail=failure.stderr_tail[-MAX_ERROR_MESSAGE_CHARS:],
            trouble=_trouble(failure),
        )
    )


def send_letter(m: Model, engaged: Engagement) -> None:
    if engaged.is_letter_sent or not m.session.is_welcome or m.now < engaged.letter_at:
        return
    letter = engaged.letters[0]
    if engaged.step is Step.REPORTING and len(engaged.letters) == 1:
        has_lines = m.reports.lines or m.reports.unstored or m.ledger.in_stage(Stage.RETURNING)
        if has_lines and m.now < engaged.deadline:
            return  # its own results first, so that the numbers are right
    engaged.is_letter_sent = True
    changes: dict[str, object] = {
        "request_id": m.requests.ask(Writing(engaged.debt_id)),
        "assignment_id": engaged.assignment_id,
    }
    if isinstance(letter, SuiteCompleted):
        changes["tasks_completed"] = engaged.completed_count
        changes["tasks_failed"] = engaged.failed_count
    m.out.append(SendFrame(msgspec.structs.replace(letter, **changes)))


def is_hopeless(m: Model, engaged: Engagement) -> bool:
    """Nobody to tell and no time to wait: the lease tells the coordinator."""
    return m.is_stopping and not m.session.is_welcome and m.now >= engaged.deadline


def finish(m: Model, engaged: Engagement) -> None:
    m.last_assignment_id = max(m.last_assignment_id, engaged.assignment_id)
    m.engagement = None
    m.session.is_beat_due = True
    m.note(
        "suite.left",
        suite=str(engaged.suite.uuid),
        completed=engaged.completed_count,
        failed=engaged.failed_count,
    )


def on_letter_answered(m: Model, message: SuiteReportAck) -> None:
    purpose = m.requests.open.get(message.request_id)
    if not isinstance(purpose, Writing):
        return
    del m.requests.open[message.request_id]
    if message.is_blocked:
        m.warn("suite.blocked")
    engaged = engaged_for(m, purpose.debt_id)
    if engaged is not None and engaged.is_letter_sent:
        engaged.letters.popleft()
        engaged.is_letter_sent = False


def on_letter_failed(m: Model, purpose: Writing, *, is_refused: bool, is_retryable: bool) -> None:
    engaged = engaged_for(m, purpose.debt_id)
    if engaged is None:
        return
    engaged.is_letter_sent = False
    if is_refused:
        engaged.letter_at = m.now + m.settings.retry_s
        if not is_retryable:
            m.warn("suite.letter_refused", kind=type(engaged.letters.popleft()).__name__)


def run_hook(m: Model, debt_id: int, phase: HookPhase, suite: TaskSuiteSpec | None) -> None:
    m.hook = (debt_id, phase)
    m.out.append(RunHook(debt_id, phase, suite))


def engaged_for(m: Model, debt_id: int) -> Engagement | None:
    """None for one that is over, and once everything is being killed."""
    engaged = m.engagement
    is_it = engaged is not None and engaged.debt_id == debt_id and not m.is_forced
    return engaged if is_it else None


def _trouble(event: HookDone) -> Trouble:
    if event.kind == "timeout" or event.kind == "network":  # noqa: PLR1714 - narrows the type
        return event.kind
    return "command"
