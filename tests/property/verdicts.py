"""What one report means for one task: the oracle's rules without any state of their own.

Written from the contract, not from the SQL; used by tests/property/model.py.
"""

from mitosis_protocol.enums import Outcome
from tasks.rows import Report, SettleOp
from tests.property.records import (
    COMMITTED,
    CRASHED,
    LOST,
    RELEASED,
    RETRIED,
    Attempt,
    Task,
)

RETRIED_EXIT_CODE = 75
DEATH_LIMIT = 2


def is_retried(report: Report) -> bool:
    return report.outcome is Outcome.FAILED and report.exit_status == RETRIED_EXIT_CODE * 256


def action_of(task: Task, op: SettleOp, cost: int, *, may_retry: bool, gives_up: bool) -> str:
    if task.is_cancelled or (op is SettleOp.COMMIT and not may_retry):
        return "end"
    if task.failures + cost >= task.max_failures:
        return "end"
    if op is SettleOp.FAILURE and not gives_up:
        return "keep"
    return "end" if task.attempts >= task.max_attempts else "requeue"


def outcome_of(task: Task, report: Report) -> Outcome:
    """With what a task ends by this report."""
    if task.is_cancelled:
        return Outcome.CANCELLED
    if report.op is not SettleOp.COMMIT or report.outcome is None:
        return Outcome.FAILED
    is_stopped = task.finish_cancelled and report.outcome is Outcome.SUCCEEDED
    return Outcome.CANCELLED if is_stopped else report.outcome


def ending_of(op: SettleOp, *, is_end: bool) -> int:
    if op is SettleOp.COMMIT:
        return COMMITTED if is_end else RETRIED
    return {SettleOp.RELEASE: RELEASED, SettleOp.LOST: LOST}.get(op, CRASHED)


def found_of(attempt: Attempt, runner: int) -> str:
    task = attempt.task
    if attempt.runner == runner and attempt.is_current:
        if task.runner == runner:
            return "cancel" if task.is_cancelled else "kept"
        if task.lost == runner:
            return "lost"
    is_settled = attempt.runner == runner and attempt.ending in {COMMITTED, RETRIED}
    return "settled" if is_settled else "revoked"
