"""Why a suite or a task waits whoever might run it: the part of `explain` about the thing itself.

Pure, like tasks.verdicts, which judges the runners.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from mitosis_protocol.enums import Outcome, SuiteState, TaskPhase
from mitosis_protocol.timestamps import format_rfc3339
from tasks.facts import Obstacle


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFacts:
    """Where a suite stands."""

    uuid: UUID
    state: SuiteState
    is_paused: bool = False
    blocked_reason: str | None = None
    cancel_reason: str | None = None
    pending: int = 0  # tasks that have not ended
    held: int = 0  # tasks in the hands of managers
    has_ready: bool = True  # one could be claimed now
    next_at: datetime | None = None  # when the next task that waits after a failure may be claimed
    max_running: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamFacts:
    uuid: UUID
    phase: TaskPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """Where a task stands; an ended one has an outcome."""

    uuid: UUID
    phase: TaskPhase | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    runner_uuid: UUID | None = None
    is_cancelling: bool = False
    not_before: datetime | None = None  # only while it is in the future
    upstream: Sequence[UpstreamFacts] = ()
    key_holder: UUID | None = None  # the task that holds the same concurrency key


def suite_obstacles(suite: SuiteFacts) -> list[Obstacle]:
    """What keeps all managers from this suite's tasks, most lasting reason first."""
    found = (check(suite) for check in _SUITE_CHECKS)
    return [one for one in found if one is not None]


def task_obstacles(task: TaskFacts) -> list[Obstacle]:
    """What keeps all runners from this task."""
    if task.outcome is not None:
        because = f": {task.reason}" if task.reason else ""
        text = f"the task has ended as {task.outcome.value}{because}"
        return [Obstacle("ended", text, "nothing; a rerun makes a new task of it")]
    found = (check(task) for check in _TASK_CHECKS)
    return [one for one in found if one is not None]


def _is_cancelled(suite: SuiteFacts) -> Obstacle | None:
    if suite.state is not SuiteState.CANCELLED:
        return None
    because = f": {suite.cancel_reason}" if suite.cancel_reason else ""
    return Obstacle("suite_cancelled", f"the suite was cancelled{because}", "make a new suite")


def _is_blocked(suite: SuiteFacts) -> Obstacle | None:
    if suite.blocked_reason is None:
        return None
    return Obstacle(
        "suite_blocked",
        f"the suite is blocked: {suite.blocked_reason}",
        "mend the cause and resume the suite",
    )


def _is_paused(suite: SuiteFacts) -> Obstacle | None:
    if not suite.is_paused:
        return None
    return Obstacle("suite_paused", "the suite is paused", "resume the suite")


def _is_idle(suite: SuiteFacts) -> Obstacle | None:
    """Nothing waits that could be handed out."""
    if suite.state is SuiteState.CANCELLED or suite.has_ready:
        return None
    if not suite.pending:
        state = suite.state.value.lower()
        return Obstacle("no_tasks", f"the suite is {state} and has no tasks left", "submit tasks")
    if suite.next_at is not None:
        until = format_rfc3339(suite.next_at)
        return Obstacle(
            "backoff", f"tasks wait after failures until {until}", f"wait until {until}"
        )
    if suite.held:
        text = f"all tasks that could run are running: {suite.held}"
        return Obstacle("all_running", text, "nothing: wait for them to end")
    return Obstacle(
        "waiting_on_upstream", "all tasks wait for others", "let the upstream tasks end"
    )


def _is_full(suite: SuiteFacts) -> Obstacle | None:
    if suite.max_running is None or suite.held < suite.max_running:
        return None
    return Obstacle(
        "at_max_running",
        f"{suite.held} tasks run and max_running is {suite.max_running}",
        "raise max_running (scale), or wait for a task to end",
    )


def _is_held(task: TaskFacts) -> Obstacle | None:
    if task.phase is None or task.phase in {TaskPhase.PENDING, TaskPhase.READY}:
        return None
    text = f"the task is {task.phase.value} on {task.runner_uuid}"
    return Obstacle("running", text, "nothing: wait for it to end")


def _is_cancelling(task: TaskFacts) -> Obstacle | None:
    if not task.is_cancelling:
        return None
    return Obstacle("cancelling", "the task was told to stop", "nothing: wait for it to stop")


def _has_upstream(task: TaskFacts) -> Obstacle | None:
    if task.phase is not TaskPhase.PENDING:
        return None
    shown = ", ".join(f"{one.uuid} ({one.phase.value})" for one in task.upstream[:10])
    return Obstacle(
        "waiting_on_upstream",
        f"the task waits for {len(task.upstream)} others: {shown}",
        "let the upstream tasks end",
    )


def _is_backing_off(task: TaskFacts) -> Obstacle | None:
    if task.not_before is None:
        return None
    until = format_rfc3339(task.not_before)
    return Obstacle("backoff", f"the task is tried again at {until}", f"wait until {until}")


def _has_rival(task: TaskFacts) -> Obstacle | None:
    if task.key_holder is None:
        return None
    text = f"task {task.key_holder} holds the same concurrency key"
    return Obstacle("concurrency_key", text, f"wait for task {task.key_holder} to end")


_SUITE_CHECKS: Final[tuple[Callable[[SuiteFacts], Obstacle | None], ...]] = (
    _is_cancelled,
    _is_blocked,
    _is_paused,
    _is_idle,
    _is_full,
)
_TASK_CHECKS: Final[tuple[Callable[[TaskFacts], Obstacle | None], ...]] = (
    _is_cancelling,
    _is_held,
    _has_upstream,
    _is_backing_off,
    _has_rival,
)
