"""Rows that tasks point at without a foreign key stay while one does (ADR 0019)."""

import threading
import time
import uuid

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction

from mitosis_protocol.enums import ReportAnswer, RunnerKind
from runners.models import Runner
from tasks.models import ActiveTask, TaskAttempt
from tests.property.lab import Lab, lab_fixture, pool_dsn

lab = pytest.fixture(name="lab")(lab_fixture)

PATIENCE_S = 20.0
POINTERS = [
    ("groups", "archived_tasks", "group_id"),
    ("users", "archived_tasks", "creator_id"),
    ("runners", "task_attempts", "runner_id"),
    ("suite_assignments", "active_tasks", "assignment_id"),
    ("suite_assignments", "archived_tasks", "assignment_id"),
    ("suite_assignments", "task_attempts", "assignment_id"),
]


@pytest.mark.parametrize(("table", "child", "column"), POINTERS)
def test_a_row_stays_while_a_task_points_at_it(lab: Lab, table: str, child: str, column: str):
    _one_task_held_and_one_ended(lab)
    [(row_id, was)] = _values(f"SELECT id, {column} FROM {child} ORDER BY id DESC LIMIT 1")
    parent = _new_parent(lab, table)
    _values(f"UPDATE {child} SET {column} = %s WHERE id = %s RETURNING id", parent, row_id)

    for change in ("DELETE FROM {} WHERE id = %s", "UPDATE {} SET id = -id WHERE id = %s"):
        with pytest.raises(IntegrityError, match="pointed at by tasks"), transaction.atomic():
            _values(change.format(table) + " RETURNING id", parent)

    _values(f"UPDATE {child} SET {column} = %s WHERE id = %s RETURNING id", was, row_id)
    assert _values(f"DELETE FROM {table} WHERE id = %s RETURNING id", parent) == [(parent,)]


def test_a_group_does_not_slip_away_while_its_last_task_ends(lab: Lab):
    runner = lab.runner_ids[0]
    lab.submit(1)
    attempt = lab.claim_attempt(runner)
    group = _new_parent(lab, "groups")
    ActiveTask.objects.filter(attempt_id=attempt).update(group_id=group)
    refused: list[psycopg.Error] = []

    def delete() -> None:
        with psycopg.connect(pool_dsn(), application_name="deletes-group") as other:
            try:
                other.execute("DELETE FROM groups WHERE id = %s", [group])
            except psycopg.Error as error:
                refused.append(error)
                other.rollback()

    thread = threading.Thread(target=delete)
    with transaction.atomic():
        lab.commit(attempt, runner)
        thread.start()
        _await_lock("deletes-group")
    thread.join(PATIENCE_S)
    [error] = refused
    assert isinstance(error, psycopg.errors.ForeignKeyViolation)
    assert "pointed at by tasks" in str(error)


def test_an_engagement_that_is_not_there_adopts_nothing(lab: Lab):
    runner = lab.runner_ids[0]
    lab.engage(runner)
    lab.submit(1, in_suite=True)
    [task] = lab.claim_from_suite(runner).tasks
    lab.expire_lease(runner)
    lab.reap()
    assert lab.adopt([task.attempt_id], runner, assignment_id=10**9) == [ReportAnswer.STALE_ATTEMPT]
    assert TaskAttempt.objects.get(pk=task.attempt_id).assignment_id is None


def _one_task_held_and_one_ended(lab: Lab) -> None:
    runner = lab.runner_ids[0]
    lab.submit(2)
    first, _ = (lab.claim_attempt(runner) for _ in range(2))
    lab.commit(first, runner)


def _new_parent(lab: Lab, table: str) -> int:
    if table == "runners":
        return Runner.objects.create(owner_id=lab.creator_id, kind=RunnerKind.DIRECT, tags=[]).pk
    if table == "suite_assignments":
        return lab.engage(lab.add_runner())
    name = uuid.uuid4().hex
    [(row_id,)] = (
        _values(
            "INSERT INTO users (username, password, state, is_staff)"
            " VALUES (%s, 'x', 0, false) RETURNING id",
            name,
        )
        if table == "users"
        else _values(
            "INSERT INTO groups (name, creator_id, state) VALUES (%s, %s, 0) RETURNING id",
            name,
            lab.creator_id,
        )
    )
    return int(row_id)


def _await_lock(application: str) -> None:
    """From outside: inside a transaction the list of sessions is the one of the first look."""
    deadline = time.monotonic() + PATIENCE_S
    waiting = (
        "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
    )
    with psycopg.connect(pool_dsn(), autocommit=True) as watcher:
        while watcher.execute(waiting, [application]).fetchone() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _values(sql: str, *params: object) -> list[tuple[int, int]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall()
