"""The tables are the state machines: every arrow that exists, and none that does not."""

import pytest

from mitosis_protocol.enums import ManagerState, Outcome, SuiteState, TaskPhase
from mitosis_protocol.transitions import (
    MANAGER,
    SUITE,
    TASK,
    TASK_ENDS,
    can_move,
    mermaid,
    source_codes,
    sources,
)

TABLES = [(SUITE, SuiteState), (MANAGER, ManagerState), (TASK, TaskPhase)]


@pytest.mark.parametrize(("table", "states"), TABLES)
def test_every_state_has_a_line(table, states):
    assert set(table) == set(states)
    assert all(targets <= set(states) for targets in table.values())


@pytest.mark.parametrize(("table", "states"), TABLES)
def test_no_state_moves_to_itself(table, states):
    assert not any(can_move(table, state, state) for state in states)


@pytest.mark.parametrize(("table", "states"), TABLES)
def test_sources_are_the_arrows_read_backwards(table, states):
    for target in states:
        assert sources(table, target) == {s for s in states if can_move(table, s, target)}
        assert source_codes(table, target) == sorted(s.code for s in sources(table, target))


def test_a_cancelled_suite_stays_cancelled():
    assert SUITE[SuiteState.CANCELLED] == frozenset()
    assert sources(SUITE, SuiteState.CANCELLED) == {
        SuiteState.OPEN,
        SuiteState.CLOSED,
        SuiteState.COMPLETE,
    }


def test_a_complete_suite_reopens_but_never_just_closes():
    assert can_move(SUITE, SuiteState.COMPLETE, SuiteState.OPEN)
    assert not can_move(SUITE, SuiteState.COMPLETE, SuiteState.CLOSED)


def test_a_manager_executes_only_after_preparing():
    assert sources(MANAGER, ManagerState.EXECUTING) == {
        ManagerState.PREPARING,
        ManagerState.OFFLINE,
    }


def test_a_manager_leaves_work_only_through_cleanup():
    assert not can_move(MANAGER, ManagerState.EXECUTING, ManagerState.IDLE)
    assert can_move(MANAGER, ManagerState.IDLE, ManagerState.CLEANUP)


def test_tasks_are_leased_from_ready_only():
    assert sources(TASK, TaskPhase.LEASED) == {TaskPhase.READY}


def test_held_tasks_may_always_go_back_to_ready():
    assert sources(TASK, TaskPhase.READY) == {
        TaskPhase.PENDING,
        TaskPhase.LEASED,
        TaskPhase.RUNNING,
        TaskPhase.FINISHING,
    }


def test_every_phase_has_a_way_to_the_archive():
    assert set(TASK_ENDS) == set(TaskPhase)
    assert all(Outcome.CANCELLED in outcomes for outcomes in TASK_ENDS.values())
    assert TASK_ENDS[TaskPhase.PENDING] == {Outcome.CANCELLED, Outcome.UPSTREAM_FAILED}


def test_the_diagram_shows_every_arrow_once():
    drawn = mermaid(TASK, TASK_ENDS).splitlines()
    arrows = [f"    {a.value} --> {b.value}" for a, targets in TASK.items() for b in targets]
    assert sorted(line for line in drawn if "[*]" not in line) == sorted(
        ["stateDiagram-v2", *arrows]
    )
    assert sum("--> [*]" in line for line in drawn) == len(TaskPhase)


def test_the_diagram_marks_terminal_states():
    assert "    Cancelled --> [*]" in mermaid(SUITE).splitlines()
