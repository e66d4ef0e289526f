"""Every row of the RFC's transition table and every illegal one, on a real database."""

import pytest

from accounts.actors import SYSTEM
from core.errors import InvalidInput, InvalidTransition, NotFound
from mitosis_protocol.enums import SuiteState
from mitosis_protocol.transitions import SUITE, can_move
from suites.models import TaskSuite
from suites.selectors import suite_counts
from suites.services.lifecycle import (
    accept_submits,
    cancel_suite_row,
    close_suite,
    move_suite,
    reopen_suite,
)
from suites.services.sweeps import close_idle, complete_drained
from tests.integration.suites.campaign import (
    counted,
    end_tasks,
    make_suite,
    make_user,
    submit,
    turn_back,
)

pytestmark = pytest.mark.django_db(transaction=True)

IDLE_S = 180


@pytest.fixture
def suite() -> TaskSuite:
    return make_suite(make_user())


def state_of(suite: TaskSuite) -> SuiteState:
    return TaskSuite.objects.get(pk=suite.pk).state


def put(suite: TaskSuite, state: SuiteState) -> None:
    """Bring a suite into a state the way it really gets there."""
    match state:
        case SuiteState.OPEN:
            submit(suite)
        case SuiteState.CLOSED:
            submit(suite)
            close_suite(actor=SYSTEM, suite=suite)
        case SuiteState.COMPLETE:
            end_tasks(submit(suite))
            close_suite(actor=SYSTEM, suite=suite)
            complete_drained(batch=10)
        case SuiteState.CANCELLED:
            submit(suite)
            cancel_suite_row(actor=SYSTEM, suite=suite, reason="a test")
    assert state_of(suite) is state


@pytest.mark.parametrize("source", list(SuiteState))
@pytest.mark.parametrize("target", list(SuiteState))
def test_move_follows_the_table_and_nothing_else(
    suite: TaskSuite, source: SuiteState, target: SuiteState
) -> None:
    put(suite, source)
    changes = {"completed_at": suite.created_at} if target is SuiteState.COMPLETE else {}
    if can_move(SUITE, source, target):
        assert move_suite(suite.pk, target, changes=changes)
        assert state_of(suite) is target
        return
    with pytest.raises(InvalidTransition):
        move_suite(suite.pk, target, changes=changes)
    assert not move_suite(suite.pk, target, changes=changes, idempotent=True)
    assert state_of(suite) is source


def test_an_absent_suite_cannot_move(suite: TaskSuite) -> None:
    with pytest.raises(NotFound):
        move_suite(suite.pk + 1, SuiteState.CLOSED)


def test_a_new_suite_is_open_and_never_completes_empty(suite: TaskSuite) -> None:
    turn_back(suite, opened_at=3600)
    assert close_idle(idle_s=IDLE_S, batch=10) == []
    assert complete_drained(batch=10) == []
    close_suite(actor=SYSTEM, suite=suite)
    assert complete_drained(batch=10) == []
    assert state_of(suite) is SuiteState.CLOSED


def test_open_closes_after_three_minutes_without_a_submit_whatever_is_pending(
    suite: TaskSuite,
) -> None:
    submit(suite, 3)
    turn_back(suite, last_task_submitted_at=IDLE_S - 5, opened_at=3600)
    assert close_idle(idle_s=IDLE_S, batch=10) == []
    turn_back(suite, last_task_submitted_at=10)
    assert close_idle(idle_s=IDLE_S, batch=10) == [suite.pk]
    assert state_of(suite) is SuiteState.CLOSED
    assert close_idle(idle_s=IDLE_S, batch=10) == []


def test_open_closes_with_nothing_pending_too(suite: TaskSuite) -> None:
    end_tasks(submit(suite))
    turn_back(suite, last_task_submitted_at=IDLE_S + 5, opened_at=3600)
    assert close_idle(idle_s=IDLE_S, batch=10) == [suite.pk]


def test_open_completes_once_settled_and_not_before(suite: TaskSuite) -> None:
    tasks = submit(suite, 2)
    turn_back(suite, opened_at=60)
    end_tasks(tasks[:1])
    turn_back(suite, last_task_submitted_at=11)
    assert complete_drained(batch=10) == [], "one task is active"
    end_tasks(tasks[1:])
    turn_back(suite, last_task_submitted_at=-11)
    assert complete_drained(batch=10) == [], "the settle time is not over"
    turn_back(suite, last_task_submitted_at=11)
    assert complete_drained(batch=10) == [suite.pk]
    suite.refresh_from_db()
    assert suite.completed_at is not None


def test_closed_completes_at_once_when_its_last_task_ended(suite: TaskSuite) -> None:
    tasks = submit(suite)
    close_suite(actor=SYSTEM, suite=suite)
    assert complete_drained(batch=10) == []
    end_tasks(tasks)
    assert complete_drained(batch=10) == [suite.pk]


@pytest.mark.parametrize("source", [SuiteState.CLOSED, SuiteState.COMPLETE])
def test_a_submit_reopens(suite: TaskSuite, source: SuiteState) -> None:
    put(suite, source)
    submit(suite)
    suite.refresh_from_db()
    assert suite.state is SuiteState.OPEN
    assert suite.generation == 2
    assert suite.completed_at is None
    assert suite.closed_at is None


def test_a_submit_to_an_open_suite_keeps_its_generation(suite: TaskSuite) -> None:
    submit(suite)
    submit(suite)
    suite.refresh_from_db()
    assert (suite.generation, suite.submit_count) == (1, 2)


def test_a_cancelled_suite_refuses_submits_with_400(suite: TaskSuite) -> None:
    put(suite, SuiteState.CANCELLED)
    before = counted(suite)
    with pytest.raises(InvalidInput, match="suite_uuid") as refusal:
        submit(suite)
    assert refusal.value.http_status == 400
    assert counted(suite) == before


def test_one_refused_suite_leaves_the_others_of_the_batch_untouched(suite: TaskSuite) -> None:
    other = make_suite(suite.creator)
    put(other, SuiteState.CLOSED)
    cancel_suite_row(actor=SYSTEM, suite=suite, reason="a test")
    with pytest.raises(InvalidInput):
        accept_submits([suite.pk, other.pk])
    assert state_of(other) is SuiteState.CLOSED


def test_an_absent_suite_refuses_submits(suite: TaskSuite) -> None:
    with pytest.raises(NotFound):
        accept_submits([suite.pk + 1])


def test_close_and_reopen_are_idempotent_and_refuse_a_cancelled_suite(suite: TaskSuite) -> None:
    submit(suite)
    assert close_suite(actor=SYSTEM, suite=suite)
    assert not close_suite(actor=SYSTEM, suite=suite)
    assert reopen_suite(actor=SYSTEM, suite=suite)
    assert not reopen_suite(actor=SYSTEM, suite=suite)
    cancel_suite_row(actor=SYSTEM, suite=suite, reason="a test")
    with pytest.raises(InvalidTransition):
        close_suite(actor=SYSTEM, suite=suite)
    with pytest.raises(InvalidTransition):
        reopen_suite(actor=SYSTEM, suite=suite)


def test_reopening_by_hand_holds_a_finished_suite_open_until_the_auto_close(
    suite: TaskSuite,
) -> None:
    put(suite, SuiteState.COMPLETE)
    turn_back(suite, last_task_submitted_at=600, opened_at=600)
    reopen_suite(actor=SYSTEM, suite=suite)
    assert complete_drained(batch=10) == []
    assert close_idle(idle_s=IDLE_S, batch=10) == []
    turn_back(suite, opened_at=IDLE_S + 1)
    assert close_idle(idle_s=IDLE_S, batch=10) == [suite.pk]
    assert complete_drained(batch=10) == [suite.pk]


def test_cancelling_twice_is_a_conflict(suite: TaskSuite) -> None:
    cancel_suite_row(actor=SYSTEM, suite=suite, reason="first")
    with pytest.raises(InvalidTransition):
        cancel_suite_row(actor=SYSTEM, suite=suite, reason="second")
    suite.refresh_from_db()
    assert suite.cancel_reason == "first"


def test_counts_are_those_of_the_tables(suite: TaskSuite) -> None:
    tasks = submit(suite, 5)
    end_tasks(tasks[:2])
    counts = suite_counts([suite.pk])[suite.pk]
    assert (counts.total, counts.pending) == counted(suite) == (5, 3)
    assert counts.cancelled == 2


def test_a_suite_without_tasks_counts_zero(suite: TaskSuite) -> None:
    assert suite_counts([suite.pk])[suite.pk].total == 0
