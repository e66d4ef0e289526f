"""The engagement with a suite, step by step: plan, owe, prepare, execute, drain, clean up, report.

Events move it, `advance` finds what follows. Whatever happens, a preparation that was begun is
followed by one cleanup, and a failed cleanup is reported and never blocks the host.
"""

from typing import Final

from mitosis_protocol.from_manager import SuiteFailed
from mitosis_protocol.limits import MAX_ERROR_MESSAGE_CHARS
from mitosis_protocol.to_manager import CancelSuite, TaskSuiteSpec
from nodeagent.core import supply, workers
from nodeagent.core.attempts import Stage
from nodeagent.core.custody import cancel
from nodeagent.core.farewell import (
    clean,
    cleaned,
    clear,
    engaged_for,
    finish,
    is_hopeless,
    release,
    run_hook,
    send_letter,
)
from nodeagent.core.model import Engagement, Model, Step, Trouble
from nodeagent.effects import CancelHook, OweCleanup, PlanSlots, SetServing, SettleDebt
from nodeagent.events import DebtOwed, HookDone, SlotsPlanned, SlotsRefused, SlotsReleased

_UNSETTLED: Final = (Stage.SHELVED, Stage.HANDED, Stage.STORING)


def offer(m: Model, assignment_id: int, suite: TaskSuiteSpec) -> None:
    """A suite for this host, a repeated offer, or a new schedule for the suite it has."""
    engaged = m.engagement
    if engaged is None:
        if assignment_id > m.last_assignment_id:
            m.next_suite = (assignment_id, suite)
    elif assignment_id == engaged.assignment_id:
        if engaged.step is Step.EXECUTING and suite != engaged.planned:
            engaged.planned = suite
            m.out.append(PlanSlots(engaged.debt_id, suite))
    elif assignment_id > engaged.assignment_id:
        # A manager has one engagement: ours is over.
        m.next_suite = (assignment_id, suite)
        leave(m, "another suite was assigned")


def begin(m: Model, assignment_id: int, suite: TaskSuiteSpec) -> None:
    m.engagement = Engagement(assignment_id, suite)
    m.supply.dry_until = 0.0
    m.supply.is_thrifty = False
    m.session.is_beat_due = True
    m.note("suite.taken_up", suite=str(suite.uuid), assignment_id=assignment_id)
    m.out.append(PlanSlots(assignment_id, suite))


def on_planned(m: Model, event: SlotsPlanned) -> None:
    engaged = engaged_for(m, event.assignment_id)
    if engaged is None:
        return
    if engaged.step is Step.EXECUTING:
        engaged.suite = engaged.planned
        engaged.worker_count = event.worker_count
        m.staff_at = m.now
    elif engaged.step is Step.PLANNING:
        engaged.worker_count = event.worker_count
        engaged.has_slots = True
        suite = engaged.suite
        if engaged.is_leaving:
            clear(m, engaged)
        elif suite.env_preparation is None and suite.env_cleanup is None:
            _execute(m, engaged)
        else:
            engaged.step = Step.OWING
            m.out.append(OweCleanup(engaged.debt_id, suite))


def on_slots_refused(m: Model, event: SlotsRefused) -> None:
    engaged = engaged_for(m, event.assignment_id)
    if engaged is None:
        return
    if engaged.step is Step.PLANNING:
        fail(m, engaged, "limits", None, event.reason)
    elif engaged.step is Step.EXECUTING:
        m.warn("suite.schedule_refused", reason=event.reason)
        engaged.planned = engaged.suite


def on_owed(m: Model, event: DebtOwed) -> None:
    engaged = engaged_for(m, event.assignment_id)
    if engaged is None or engaged.step is not Step.OWING:
        return
    if event.trouble is not None:
        fail(m, engaged, "command", None, f"the cleanup could not be noted: {event.trouble}")
        return
    engaged.is_owed = True
    if engaged.is_leaving:
        clear(m, engaged)
        return
    engaged.is_prepared = True
    if engaged.suite.env_preparation is None:
        _execute(m, engaged)
    else:
        engaged.step = Step.PREPARING
        run_hook(m, engaged.debt_id, "preparation", engaged.suite)


def on_hook_done(m: Model, event: HookDone) -> None:
    if m.hook != (event.assignment_id, event.phase):
        return
    m.hook = None
    if m.is_forced:
        if event.phase == "cleanup" and event.kind != "cancelled":
            m.out.append(SettleDebt(event.assignment_id))
        return
    if m.is_paying:
        _debt_paid(m, event)
        return
    engaged = engaged_for(m, event.assignment_id)
    if engaged is None:
        return
    if event.phase == "cleanup":
        cleaned(m, engaged, event)
    elif event.kind == "ok" and not engaged.is_leaving:
        _execute(m, engaged)
    elif event.kind == "ok":
        clear(m, engaged)
    elif event.kind == "cancelled":
        engaged.is_leaving = True
        clear(m, engaged)
    else:
        fail(m, engaged, event.kind, event.exit_code, event.stderr_tail)


def on_released(m: Model, event: SlotsReleased) -> None:
    engaged = engaged_for(m, event.assignment_id)
    if engaged is None or engaged.step is not Step.RELEASING:
        return
    if event.trouble is not None:
        m.warn("host.troubled", reason=event.trouble)
        m.is_stopping, m.exit_code, m.exit_reason = True, 1, event.trouble
    clean(m, engaged)


def leave(m: Model, why: str) -> None:
    """The engagement ends: what runs goes on, nothing new begins, then the host is cleaned up."""
    engaged = m.engagement
    if engaged is None or engaged.is_leaving:
        return
    engaged.is_leaving = True
    m.note("suite.leaving", suite=str(engaged.suite.uuid), reason=why)
    if engaged.step is Step.PREPARING:
        m.out.append(CancelHook(engaged.debt_id, "preparation"))
    elif engaged.step is Step.EXECUTING:
        engaged.step = Step.DRAINING
        supply.drop_claims(m)
        m.session.is_beat_due = True


def fail(
    m: Model, engaged: Engagement, trouble: Trouble, exit_code: int | None, stderr_tail: str
) -> None:
    """This host cannot be prepared for the suite; cleaned up all the same."""
    m.warn("suite.failed", suite=str(engaged.suite.uuid), trouble=trouble, exit_code=exit_code)
    letter = SuiteFailed(
        suite_uuid=engaged.suite.uuid,
        phase="preparation",
        exit_code=exit_code,
        stderr_tail=stderr_tail[-MAX_ERROR_MESSAGE_CHARS:],
        trouble=trouble,
        assignment_id=engaged.assignment_id,
    )
    engaged.letters.append(letter)
    if engaged.step is Step.EXECUTING:
        leave(m, trouble)
    else:
        engaged.is_leaving = True
        clear(m, engaged)


def on_cancel(m: Model, message: CancelSuite) -> None:
    engaged = m.engagement
    if m.next_suite is not None and m.next_suite[1].uuid == message.suite_uuid:
        m.next_suite = None
    if engaged is None or engaged.suite.uuid != message.suite_uuid:
        return
    leave(m, "the suite was cancelled")
    if message.cancel_running_tasks:
        for attempt in m.ledger.in_stage(Stage.SHELVED, Stage.HANDED):
            cancel(m, attempt)


def advance(m: Model, engaged: Engagement) -> None:
    """Whatever can be done now without another event."""
    if engaged.trouble is not None and engaged.step is Step.EXECUTING:
        trouble, text = engaged.trouble
        fail(m, engaged, trouble, None, text)
    serve(m, engaged)
    if engaged.step is Step.EXECUTING:
        workers.advance(m, engaged)
    elif engaged.step is Step.DRAINING and not m.ledger.in_stage(*_UNSETTLED):
        clear(m, engaged)
    if engaged.step is Step.CLEARING and not m.slots:
        release(m, engaged)
    if engaged.letters:
        send_letter(m, engaged)
    if engaged.step is Step.REPORTING and (not engaged.letters or is_hopeless(m, engaged)):
        finish(m, engaged)


def serve(m: Model, engaged: Engagement) -> None:
    """The shelf is served exactly while attempts may wait here; otherwise it is emptied."""
    is_accepting = m.is_accepting
    if engaged.step not in {Step.EXECUTING, Step.DRAINING} or m.is_serving == is_accepting:
        return
    m.is_serving = is_accepting
    m.out.append(SetServing(is_accepting))
    if is_accepting:
        m.supply.dry_until = 0.0
    else:
        supply.withdraw_all(m)


def _execute(m: Model, engaged: Engagement) -> None:
    engaged.step = Step.EXECUTING
    m.staff_at = m.now
    m.session.is_beat_due = True


def _debt_paid(m: Model, event: HookDone) -> None:
    m.is_paying = False
    m.session.is_beat_due = True
    if event.kind != "ok":
        m.warn("cleanup.degraded", kind=event.kind, code=event.exit_code)
    m.debts.popleft()
    m.out.append(SettleDebt(event.assignment_id))


def pay_debt(m: Model) -> None:
    """What an earlier life owes comes before anything new."""
    m.is_paying = True
    m.session.is_beat_due = True
    run_hook(m, m.debts[0].assignment_id, "cleanup", None)
