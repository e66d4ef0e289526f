"""Tasks that every eligible manager has given up end, so that their suite can complete."""

import pytest
from django.db import connection

from accounts.actors import SYSTEM
from accounts.models import User
from managers.services import attributes
from suites.models import TaskSuite
from suites.selectors import suite_counts
from suites.services.lifecycle import close_suite
from suites.services.sweeps import complete_drained
from tasks.services.suite_hopeless import end_hopeless
from tests.integration.managers.fleet import register
from tests.integration.suites.campaign import make_suite, make_user, submit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ada() -> User:
    return make_user("ada")


def give_up(task_id: int, *manager_ids: int) -> None:
    """As the report of a manager leaves it that saw the task crash too often."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE active_tasks SET excluded_runner_ids = %s WHERE id = %s",
            [list(manager_ids), task_id],
        )


def outcome_of(task_id: int) -> tuple[int, str] | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT outcome, reason FROM archived_tasks WHERE id = %s", [task_id])
        row: tuple[int, str] | None = cursor.fetchone()
        return row


def completed(suite: TaskSuite) -> bool:
    close_suite(actor=SYSTEM, suite=suite)
    return complete_drained(batch=10) == [suite.pk]


def test_a_task_given_up_by_all_fails_and_the_suite_completes(ada: User) -> None:
    suite, one, other = make_suite(ada), register(ada), register(ada)
    [task_id] = submit(suite)
    give_up(task_id, one.pk)
    assert end_hopeless(max_tasks=10) == 0, "the other one may still run it"
    assert not completed(suite)
    give_up(task_id, one.pk, other.pk)
    assert end_hopeless(max_tasks=10) == 1
    assert end_hopeless(max_tasks=10) == 0
    assert outcome_of(task_id) == (1, "every manager that may run it has given it up")
    counts = suite_counts([suite.pk])[suite.pk]
    assert (counts.failed, counts.pending) == (1, 0)
    assert completed(suite)


def test_a_new_manager_gives_it_another_chance(ada: User) -> None:
    suite, one = make_suite(ada), register(ada)
    [task_id] = submit(suite)
    give_up(task_id, one.pk)
    register(ada)
    assert end_hopeless(max_tasks=10) == 0


def test_without_any_eligible_manager_it_waits(ada: User) -> None:
    suite, one = make_suite(ada), register(ada)
    [task_id] = submit(suite)
    give_up(task_id, one.pk)
    attributes.remove_groups(actor=SYSTEM, runner=one, group_names=["ada"])
    assert end_hopeless(max_tasks=10) == 0
    assert outcome_of(task_id) is None


def test_the_sweep_uses_its_index(ada: User) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        cursor.execute(
            "EXPLAIN SELECT id FROM active_tasks"
            " WHERE is_ready AND excluded_runner_ids <> '{}' ORDER BY id LIMIT 5"
        )
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("RESET enable_seqscan")
    assert "active_tasks_excluded" in plan
