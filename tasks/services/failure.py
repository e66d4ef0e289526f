"""Crashes: charge them, decide who goes on, give tasks back.

The runner reports what died, the server keeps the budget. On one runner the deaths of a task are
counted in task_execution_failures (fatal signals give up earlier); over all of them
`max_failures` of the task decides. Each function returns a Report for tasks.services.report.settle.
"""

import signal
from typing import Final
from uuid import UUID

from django.conf import settings

from mitosis_protocol.limits import MAX_ERROR_MESSAGE_CHARS
from tasks.rows import Report, SettleOp

# A broken host or a broken binary: another try on the same machine rarely helps.
FATAL_SIGNALS: Final = frozenset({signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE})


def failure_report(
    *,
    attempt_id: int,
    runner_id: int,
    op_id: UUID,
    reason: str,
    died_by: int | None = None,
    worker_id: int | None = None,
) -> Report:
    """A worker or its command died (`died_by`: the signal) and the runner would try again.

    Settled.action says what to do: `keep` (try again), `requeue` (this runner is excluded now) or
    `end` (the budget is gone, or the task was cancelled meanwhile).
    """
    policy = settings.MITOSIS
    is_fatal = died_by is not None and died_by in FATAL_SIGNALS
    return Report(
        attempt_id=attempt_id,
        runner_id=runner_id,
        op=SettleOp.FAILURE,
        op_id=op_id,
        reason=reason[:MAX_ERROR_MESSAGE_CHARS],
        charge=True,
        death_limit=policy.fatal_signal_deaths if is_fatal else policy.other_deaths,
        worker_id=worker_id,
    )


def abort_report(
    *,
    attempt_id: int,
    runner_id: int,
    op_id: UUID,
    reason: str,
    charge: bool,
    exclude: bool = True,
) -> Report:
    """The runner gives the task up. `charge` False when its failures were reported one by one."""
    return Report(
        attempt_id=attempt_id,
        runner_id=runner_id,
        op=SettleOp.ABORT,
        op_id=op_id,
        reason=reason[:MAX_ERROR_MESSAGE_CHARS],
        charge=charge,
        exclude=exclude,
    )


def release_report(*, attempt_id: int, runner_id: int, op_id: UUID) -> Report:
    """Handed back unstarted (drain, surplus): free of charge, refused once it was started."""
    return Report(attempt_id=attempt_id, runner_id=runner_id, op=SettleOp.RELEASE, op_id=op_id)


def lost_report(*, attempt_id: int, runner_id: int, op_id: UUID, reason: str) -> Report:
    """The runner does not have it (any more): back to the queue, charged if it was started."""
    return Report(
        attempt_id=attempt_id, runner_id=runner_id, op=SettleOp.LOST, op_id=op_id, reason=reason
    )
