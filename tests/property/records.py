"""Tasks and attempts as the oracle remembers them, with the codes the database uses.

Filled and changed by tests/property/model.py alone.
"""

from dataclasses import dataclass, field
from uuid import UUID

from mitosis_protocol.enums import DependencyCondition, Outcome

PENDING, READY, LEASED, RUNNING, FINISHING = range(5)
FAILING = {Outcome.FAILED, Outcome.TIMEOUT, Outcome.OOM, Outcome.UPSTREAM_FAILED}

# How an attempt was closed: task_attempts.ending.
COMMITTED, LOST, CRASHED, RELEASED, FENCED, RETRIED = range(6)


@dataclass(eq=False)
class Attempt:
    """`op_id` of the report that closed it; None after the coordinator did."""

    id: int
    task: "Task"
    runner: int
    claim_id: UUID
    op_id: UUID | None = None
    ending: int | None = None

    @property
    def is_current(self) -> bool:
        return not self.task.is_ended and self.task.attempt is self


@dataclass(eq=False, kw_only=True)
class Task:
    id: int
    uuid: UUID
    in_suite: bool = False
    retries: bool = False
    is_tagged: bool = False
    priority: int = 0
    max_failures: int
    max_attempts: int
    state: int = READY
    outcome: Outcome | None = None
    end_op: UUID | None = None
    attempt: Attempt | None = None
    attempts: int = 0
    runner: int | None = None
    lost: int | None = None
    lost_charge: int = 0
    is_started: bool = False
    is_overdue: bool = False
    is_delayed: bool = False
    failures: int = 0
    is_cancelled: bool = False
    finish_cancelled: bool = False
    last_op: UUID | None = None
    excluded: set[int] = field(default_factory=set)
    waits_for: dict[int, DependencyCondition] = field(default_factory=dict)
    dependents: int = 0
    deaths: dict[int, int] = field(default_factory=dict)

    @property
    def is_ended(self) -> bool:
        return self.outcome is not None

    @property
    def is_held(self) -> bool:
        return self.runner is not None

    def speaker(self) -> int | None:
        """The one runner whose report on the current attempt counts."""
        return self.lost if self.runner is None else self.runner


def is_met(condition: DependencyCondition, outcome: Outcome) -> bool:
    """Written out a second time on purpose: the oracle must not ask the code under test."""
    if condition is DependencyCondition.OK:
        return outcome is Outcome.SUCCEEDED
    return condition is DependencyCondition.ANY or outcome in FAILING
