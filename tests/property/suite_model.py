"""What should be true of suites and their tasks: the oracle of the suite machine.

Each method answers what the service has to answer, or raises nothing and says `Refused`, and then
does the same to the model. Written from DESIGN 4.2 and correctness 1.6, not from the SQL.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from mitosis_protocol.enums import Outcome, SuiteState
from tests.property.records import FAILING

OPEN, CLOSED, COMPLETE, CANCELLED = (
    SuiteState.OPEN,
    SuiteState.CLOSED,
    SuiteState.COMPLETE,
    SuiteState.CANCELLED,
)
SETTLE_S = 100
IDLE_S = 1000


class Refused(Exception):
    """The service has to say no, and nothing changes."""


@dataclass(eq=False)
class Work:
    """A task of a suite."""

    id: int
    uuid: UUID
    suite: "Suite"
    holder: int | None = None
    attempt_id: int | None = None
    is_told: bool = False  # to stop
    outcome: Outcome | None = None
    is_rerun: bool = False

    @property
    def waits(self) -> bool:
        return self.outcome is None and self.holder is None


@dataclass(eq=False)
class Suite:
    id: int
    max_running: int | None
    max_failures: int | None
    state: SuiteState = OPEN
    generation: int = 1
    submits: int = 0
    is_paused: bool = False
    is_blocked: bool = False
    is_closed: bool = False  # closed_at stays until it opens again
    is_complete: bool = False
    forgiven: int = 0
    since_submit: float = 0
    since_opened: float = 0
    is_reopened: bool = False  # by hand, and nothing came since
    tasks: dict[int, Work] = field(default_factory=dict)

    @property
    def active(self) -> list[Work]:
        return [task for task in self.tasks.values() if task.outcome is None]

    @property
    def failed(self) -> int:
        return sum(task.outcome in FAILING for task in self.tasks.values())

    def refuse_cancelled(self) -> None:
        if self.state is CANCELLED:
            raise Refused

    # --- people ---

    def submit(self) -> None:
        self.refuse_cancelled()
        self._open()
        self.submits += 1
        self.since_submit, self.is_reopened = 0, False

    def close(self) -> bool:
        self.refuse_cancelled()
        if self.state is not OPEN:
            return False
        self.state, self.is_closed = CLOSED, True
        return True

    def reopen(self) -> bool:
        self.refuse_cancelled()
        if self.state is OPEN:
            return False
        self._open()
        self.since_opened, self.is_reopened = 0, True
        return True

    def pause(self) -> bool:
        self.refuse_cancelled()
        was_paused, self.is_paused = self.is_paused, True
        return not was_paused

    def resume(self) -> None:
        self.refuse_cancelled()
        if self.is_blocked:
            self.forgiven = self.failed
        self.is_paused = self.is_blocked = False

    def cancel(self, *, stop_running: bool) -> tuple[list[int], list[int]]:
        """The tasks that end at once, and those that are told to stop."""
        self.refuse_cancelled()
        self.state = CANCELLED
        ended = [task for task in self.active if task.waits]
        told = [task for task in self.active if not task.waits] if stop_running else []
        for task in ended:
            task.outcome = Outcome.CANCELLED
        for task in told:
            task.is_told = True
        return [task.id for task in ended], [task.id for task in told]

    def rerunnable(self, outcome: Outcome) -> list[Work]:
        self.refuse_cancelled()
        return [
            task for task in self.tasks.values() if task.outcome is outcome and not task.is_rerun
        ]

    def delete(self) -> None:
        if self.submits:
            raise Refused

    # --- time ---

    def is_idle(self) -> bool:
        is_old = self.since_submit > IDLE_S and self.since_opened > IDLE_S
        return self.state is OPEN and self.submits > 0 and is_old

    def is_drained(self) -> bool:
        if not self.submits or self.active or self.state not in {OPEN, CLOSED}:
            return False
        is_settled = not self.is_reopened and self.since_submit > SETTLE_S
        return self.state is CLOSED or is_settled

    def is_failing(self) -> bool:
        if self.max_failures is None or self.is_blocked or self.state not in {OPEN, CLOSED}:
            return False
        return self.failed - self.forgiven >= self.max_failures

    def complete(self) -> None:
        self.state, self.is_complete = COMPLETE, True

    # --- managers ---

    def claimable(self, want: int) -> list[Work]:
        if self.state not in {OPEN, CLOSED} or self.is_paused or self.is_blocked:
            return []
        held = sum(task.holder is not None for task in self.active)
        room = want if self.max_running is None else min(want, self.max_running - held)
        return sorted((task for task in self.active if task.waits), key=_by_id)[: max(0, room)]

    # --- what the rows have to be ---

    def row(self) -> list[object]:
        return [
            self.id,
            self.state.code,
            self.generation,
            self.submits,
            self.is_paused,
            self.is_blocked,
            self.is_closed,
            self.is_complete,
            self.state is CANCELLED,
            self.forgiven,
        ]

    def counts(self) -> dict[str, int]:
        ends = [task.outcome for task in self.tasks.values() if task.outcome is not None]
        return {
            "total": len(self.tasks),
            "pending": len(self.active),
            "succeeded": ends.count(Outcome.SUCCEEDED),
            "failed": self.failed,
            "cancelled": ends.count(Outcome.CANCELLED),
        }

    def _open(self) -> None:
        self.generation += self.state is not OPEN
        self.state = OPEN
        self.is_closed = self.is_complete = False


def all_tasks(suites: list[Suite]) -> Iterator[Work]:
    """In the order of their ids."""
    yield from sorted((task for suite in suites for task in suite.tasks.values()), key=_by_id)


def _by_id(task: Work) -> int:
    return task.id
