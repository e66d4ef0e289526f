"""The end of the agent: asked for by a signal, by the coordinator, or by trouble on the host.

Graceful: leave the suite (what runs goes on), clean up, report, exit. Forced: kill everything;
what is owed stays in the debt book and in the outbox for the next life.
"""

from nodeagent.core import workers
from nodeagent.core.attempts import Stage
from nodeagent.core.engagement import begin, leave, pay_debt
from nodeagent.core.model import FOREVER, Model
from nodeagent.effects import CancelHook, Exit
from nodeagent.events import HostTroubled


def stop(m: Model, reason: str, *, is_forced: bool) -> None:
    if not m.is_stopping:
        m.is_stopping = True
        m.exit_reason = reason
        m.note("agent.stopping", reason=reason, is_forced=is_forced)
        leave(m, reason)
    if is_forced and not m.is_forced:
        m.is_forced = True
        m.stop_deadline = m.now + m.settings.settle_s
        workers.dismiss_all(m)
        for slot in m.slots.values():
            workers.kill(m, slot)
        if m.hook is not None:
            m.out.append(CancelHook(*m.hook))


def on_troubled(m: Model, event: HostTroubled) -> None:
    """Never another task on a host that cannot be trusted with one."""
    m.exit_code = 1
    stop(m, event.reason, is_forced=False)


def advance_idle(m: Model) -> None:
    """Without an engagement: old debts first, then the next suite, or the end."""
    if m.is_stopping:
        if not m.is_paying:
            _exit_when_settled(m)
    elif m.is_paying:
        return
    elif m.debts:
        pay_debt(m)
    elif m.next_suite is not None:
        assignment_id, suite = m.next_suite
        m.next_suite = None
        begin(m, assignment_id, suite)


def advance_forced(m: Model) -> None:
    is_quiet = not m.hook and not any(slot.is_present for slot in m.slots.values())
    if (is_quiet and not m.reports.unstored) or m.now >= m.stop_deadline:
        _exit(m)


def _exit_when_settled(m: Model) -> None:
    if m.stop_deadline == FOREVER:
        m.stop_deadline = m.now + m.settings.settle_s
    reports = m.reports
    is_settled = not reports.lines and not m.ledger.in_stage(Stage.RETURNING)
    is_late = m.now >= m.stop_deadline
    if (not reports.unstored and (is_settled or not m.session.is_welcome)) or is_late:
        _exit(m)


def _exit(m: Model) -> None:
    m.is_over = True
    m.out.append(Exit(m.exit_code, m.exit_reason))
