"""What the database itself refuses, whoever writes: states, owners, edges, deletions."""

import uuid

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.utils import InternalError

from mitosis_protocol.enums import Outcome, TaskPhase
from tasks.models import ActiveTask, ArchivedTask, TaskAttempt, TaskEvent
from tests.property.lab import Lab, lab_fixture, query

lab = pytest.fixture(name="lab")(lab_fixture)


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("state = 5, runner_id = 1, attempt_id = 1", "active_tasks_state"),
        ("state = 2", "active_tasks_held_has_runner"),
        ("runner_id = 1", "active_tasks_held_has_runner"),
        ("state = 0", "active_tasks_pending_waits"),
        ("waiting_on = 1", "active_tasks_pending_waits"),
        ("state = 3, runner_id = 1, attempt_id = 1", "active_tasks_running_started"),
        (
            "state = 2, runner_id = 1, attempt_id = 1, lost_runner_id = 2",
            "active_tasks_lost_is_ready",
        ),
        ("failures = -1", "active_tasks_budgets"),
        ("attempt = max_attempts + 1", "active_tasks_budgets"),
        ("max_failures = 0", "active_tasks_budgets"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(lab: Lab, change: str, constraint: str):
    task_id = lab.submit_one()
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        query(f"UPDATE active_tasks SET {change} WHERE id = %s RETURNING id", task_id)


def test_a_second_end_of_a_task_is_impossible(lab: Lab):
    runner = lab.runner_ids[0]
    task_id = lab.submit_one()
    lab.commit(lab.claim_attempt(runner), runner)
    with pytest.raises(IntegrityError, match="archived_tasks_pkey"), transaction.atomic():
        query(
            "INSERT INTO archived_tasks SELECT * FROM archived_tasks WHERE id = %s RETURNING id",
            task_id,
        )


def test_an_attempt_number_is_used_once(lab: Lab):
    runner = lab.runner_ids[0]
    lab.submit_one()
    attempt = TaskAttempt.objects.get(pk=lab.claim_attempt(runner))
    with pytest.raises(IntegrityError, match="task_attempts_fence"), transaction.atomic():
        TaskAttempt.objects.create(
            task_id=attempt.task_id,
            attempt=attempt.attempt,
            runner_id=runner,
            session_epoch=0,
            claim_id=uuid.uuid4(),
        )


@pytest.mark.parametrize("table", ["groups", "users", "runners", "task_suites"])
def test_what_tasks_point_at_cannot_be_deleted(lab: Lab, table: str):
    runner = lab.runner_ids[0]
    lab.submit(1, in_suite=True)
    lab.claim_from_suite(runner)
    row_id = {
        "groups": lab.group_id,
        "users": lab.creator_id,
        "runners": runner,
        "task_suites": lab.suite_id,
    }[table]
    with pytest.raises((IntegrityError, InternalError)), transaction.atomic():
        query(f"DELETE FROM {table} WHERE id = %s RETURNING id", row_id)


def test_foreign_keys_of_the_hot_tables_are_immediate_and_restrict(lab: Lab):
    rows = query(
        "SELECT conname, condeferrable, confdeltype FROM pg_constraint"
        " WHERE contype = 'f' AND conrelid = ANY (ARRAY['active_tasks', 'archived_tasks',"
        " 'task_attempts', 'task_execution_failures', 'submissions']::regclass[])"
    )
    # Those that statements prove themselves are guarded at their other end: test_proven_keys.py.
    assert {row["conname"] for row in rows} == {
        "active_tasks_group_fk",
        "active_tasks_creator_fk",
        "active_tasks_suite_fk",
        "archived_tasks_suite_fk",
        "task_failures_runner_fk",
        "submissions_user_fk",
    }
    assert {(row["condeferrable"], row["confdeltype"]) for row in rows} == {(False, "r")}


def test_no_index_of_active_tasks_mentions_its_state(lab: Lab):
    """Else Start and Finish would write every index anew."""
    rows = query("SELECT indexdef FROM pg_indexes WHERE tablename = 'active_tasks'")
    assert rows
    assert [row["indexdef"] for row in rows if "state" in row["indexdef"]] == []


def test_models_read_what_the_statements_write(lab: Lab):
    runner = lab.runner_ids[0]
    [ref] = lab.submit(1, labels=["x"])
    task = ActiveTask.objects.get(uuid=ref.uuid)
    assert (task.state, task.is_ready, task.queue_id) == (TaskPhase.READY, True, lab.group_id)
    attempt = lab.claim_attempt(runner)
    assert ActiveTask.objects.get(uuid=ref.uuid).state is TaskPhase.LEASED
    lab.commit(attempt, runner, Outcome.TIMEOUT)
    ended = ArchivedTask.objects.get(uuid=ref.uuid)
    assert (ended.outcome, ended.labels, ended.attempt_id) == (Outcome.TIMEOUT, ["x"], attempt)
    assert [event.seq for event in TaskEvent.objects.filter(task_id=ref.id).order_by("seq")] == [
        1,
        2,
        3,
    ]
    assert connection.in_atomic_block is False
