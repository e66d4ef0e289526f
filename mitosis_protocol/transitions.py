"""The three state machines as tables, and nothing else.

`sources` feeds the guarded UPDATEs (core.transitions), tests walk the tables, `mermaid` draws
them for the docs. A table maps a state to the states it may move to.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from mitosis_protocol.enums import CodedEnum, ManagerState, Outcome, SuiteState, TaskPhase

State = TypeVar("State", bound=CodedEnum)

# A submit reopens Closed and Complete; nothing leaves Cancelled.
SUITE: Final[Mapping[SuiteState, frozenset[SuiteState]]] = {
    SuiteState.OPEN: frozenset({SuiteState.CLOSED, SuiteState.COMPLETE, SuiteState.CANCELLED}),
    SuiteState.CLOSED: frozenset({SuiteState.OPEN, SuiteState.COMPLETE, SuiteState.CANCELLED}),
    SuiteState.COMPLETE: frozenset({SuiteState.OPEN, SuiteState.CANCELLED}),
    SuiteState.CANCELLED: frozenset(),
}

# The agent's own machine. Idle goes to Cleanup when it starts with a cleanup owed, Preparing when
# the hook failed half-way. Offline is put on and taken off by the coordinator: whatever the agent
# was doing, it may still be doing when it comes back.
MANAGER: Final[Mapping[ManagerState, frozenset[ManagerState]]] = {
    ManagerState.IDLE: frozenset(
        {ManagerState.PREPARING, ManagerState.CLEANUP, ManagerState.OFFLINE}
    ),
    ManagerState.PREPARING: frozenset(
        {ManagerState.EXECUTING, ManagerState.CLEANUP, ManagerState.IDLE, ManagerState.OFFLINE}
    ),
    ManagerState.EXECUTING: frozenset({ManagerState.CLEANUP, ManagerState.OFFLINE}),
    ManagerState.CLEANUP: frozenset({ManagerState.IDLE, ManagerState.OFFLINE}),
    ManagerState.OFFLINE: frozenset(
        {
            ManagerState.IDLE,
            ManagerState.PREPARING,
            ManagerState.EXECUTING,
            ManagerState.CLEANUP,
        }
    ),
}

# Rows of the active table. Every way back to Ready is a lost lease, an abort or a release; Start
# is batched, so Finish may overtake it and Leased may go straight to Finishing.
TASK: Final[Mapping[TaskPhase, frozenset[TaskPhase]]] = {
    TaskPhase.PENDING: frozenset({TaskPhase.READY}),
    TaskPhase.READY: frozenset({TaskPhase.LEASED}),
    TaskPhase.LEASED: frozenset({TaskPhase.RUNNING, TaskPhase.FINISHING, TaskPhase.READY}),
    TaskPhase.RUNNING: frozenset({TaskPhase.FINISHING, TaskPhase.READY}),
    TaskPhase.FINISHING: frozenset({TaskPhase.READY}),
}

_REPORTED: Final = frozenset(
    {Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMEOUT, Outcome.OOM, Outcome.CANCELLED}
)

# With which outcomes a row may leave the active table for the archive. Ready takes reports as
# well: the late result of a lost attempt that nobody has claimed again is accepted.
TASK_ENDS: Final[Mapping[TaskPhase, frozenset[Outcome]]] = {
    TaskPhase.PENDING: frozenset({Outcome.CANCELLED, Outcome.UPSTREAM_FAILED}),
    TaskPhase.READY: _REPORTED,
    TaskPhase.LEASED: _REPORTED,
    TaskPhase.RUNNING: _REPORTED,
    TaskPhase.FINISHING: _REPORTED,
}


def can_move(table: Mapping[State, frozenset[State]], source: State, target: State) -> bool:
    """Whether the table has an arrow from `source` to `target`."""
    return target in table[source]


def sources(table: Mapping[State, frozenset[State]], target: State) -> frozenset[State]:
    """Every state with an arrow to `target`."""
    return frozenset(state for state, targets in table.items() if target in targets)


def source_codes(table: Mapping[State, frozenset[State]], target: State) -> list[int]:
    """`sources` as database integers, for `WHERE state = ANY(%s)`."""
    return sorted(state.code for state in sources(table, target))


def mermaid(
    table: Mapping[State, frozenset[State]],
    ends: Mapping[State, Iterable[Outcome]] | None = None,
) -> str:
    """The table as a mermaid state diagram; `ends` adds the arrows out of it."""
    first = min(table, key=lambda state: state.code)
    lines = ["stateDiagram-v2", f"    [*] --> {first.value}"]
    for state, targets in table.items():
        ordered = sorted(targets, key=lambda target: target.code)
        lines.extend(f"    {state.value} --> {target.value}" for target in ordered)
    for state, outcomes in (ends or {}).items():
        names = ", ".join(outcome.value for outcome in sorted(outcomes))
        lines.append(f"    {state.value} --> [*]: {names}")
    if ends is None:
        lines.extend(
            f"    {state.value} --> [*]" for state, targets in table.items() if not targets
        )
    return "\n".join(lines) + "\n"
