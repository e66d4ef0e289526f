"""What the state machine chooses from, and how a choice becomes an attempt or a report.

Choices are words and small numbers, not objects, so the same one finds the newest, the lost or the
forgotten attempt in whatever state the machine is. A whole step is made from one number: without
it, the steps after it stay what they were, which is how a failing example gets short.
"""

import uuid
from collections.abc import Sequence
from random import Random
from typing import Protocol, TypeVar

from mitosis_protocol.enums import DependencyCondition, Outcome
from tasks.rows import Report, SettleOp
from tests.property.records import Attempt
from tests.property.verdicts import DEATH_LIMIT, RETRIED_EXIT_CODE

Thing = TypeVar("Thing")


class Draw(Protocol):
    """One of several, each as likely as it is often there."""

    def __call__(self, options: Sequence[Thing], /) -> Thing: ...


RUNNERS = (0, 1)
EITHER = (False, True)
RARELY = (False, False, False, False, True)
WANTS = (1, 2, 3)
OUTCOMES = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMEOUT)
CONDITIONS = tuple(DependencyCondition)
PRIORITIES = (0, 0, 5)
FAILURE_BUDGETS = (2, 3)
ATTEMPT_BUDGETS = (5, 5, 3)
# How far back: mostly the newest, sometimes something long forgotten.
RECENT = (0, 0, 0, 1, 1, 2, 3)
# Where an attempt is looked for, if there is one of the kind.
KINDS = ("held", "held", "held", "lost", "lost", "lost", "old", "old", "over")
OPS = (SettleOp.COMMIT, SettleOp.COMMIT, *SettleOp)
# Role and consent of a group's grant on a runner: only Write or Admin with consent is one.
GRANTS = ((0, 1), (1, 0), (2, 1), (1, 1))

_ALWAYS = "claim claim claim submit start start finish report report report"
# What an example is about: its moves, each as often as it stands here.
MOODS = {
    "reports": "mix_up_attempts repeat_a_report reuse_an_op_id progress progress report report"
    " report_twice_at_once report_twice_at_once",
    "losses": "lose lose lose adopt adopt report report finish compare_inventories reap go_silent"
    " mix_up_attempts",
    "fences": "claim repeat_a_claim repeat_a_claim claim_together claim_together go_silent connect"
    " mix_up_attempts remove change_the_grant change_the_grant the_backoff_ends",
    "cancels": "cancel cancel cancel end_overdue lose report report report_twice_at_once",
    "graphs": "submit_after submit_after submit_after submit_after cancel cancel report report",
    "sessions": "another_session_writes read_the_log remove adopt lose progress"
    " report_twice_at_once come_while_another_session_is_at_work",
}
MOODS = {name: f"{_ALWAYS} {moves}".split() for name, moves in MOODS.items()}
MOODS["all"] = [move for moves in MOODS.values() for move in moves]


def draw_with(dice: int) -> Draw:
    """The choices of one step."""
    return Random(dice).choice


def pick(things: Sequence[Thing], back: int) -> Thing:
    """The newest, or so many before it."""
    return things[-1 - back % len(things)]


def is_kind(attempt: Attempt, kind: str) -> bool:
    """held: its runner has it; lost: it may be taken back; old: its task was claimed again."""
    task = attempt.task
    if kind == "held":
        return attempt.is_current and task.is_held
    if kind == "lost":
        return attempt.is_current and task.lost is not None
    if kind == "old":
        return not attempt.is_current and not task.is_ended
    return not attempt.is_current or task.speaker() is None


def report_on(
    attempt: Attempt,
    runner_id: int,
    op: SettleOp,
    outcome: Outcome = Outcome.SUCCEEDED,
    *,
    is_retried: bool = False,
) -> Report:
    """A charged report with an op_id of its own."""
    exit_code = RETRIED_EXIT_CODE if is_retried else 1
    return Report(
        attempt_id=attempt.id,
        runner_id=runner_id,
        op=op,
        op_id=uuid.uuid4(),
        outcome=outcome,
        exit_status=0 if outcome is Outcome.SUCCEEDED else exit_code * 256,
        charge=True,
        death_limit=DEATH_LIMIT,
    )
