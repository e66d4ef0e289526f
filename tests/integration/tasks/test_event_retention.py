"""The event log forgets tasks that ended long ago, and nothing else."""

import psycopg
import pytest

from core.locks import lock_number
from managers.models import SweepRun
from tasks import periodic
from tasks.services.retention import trim_events
from tests.property.lab import Lab, pool_dsn, query


@pytest.fixture(name="lab")
def fresh_lab(transactional_db: None) -> Lab:
    """With a log of its own: other tests leave events of tasks that are gone."""
    query("DELETE FROM task_events RETURNING 1")
    return Lab()


DAY_S = 24 * 3600.0
TERMS = {"keep_s": 30 * DAY_S, "max_events": 1000, "max_slices": 10}


def test_the_events_of_a_task_that_ended_long_ago_go(lab: Lab):
    task_id = _ended(lab)
    _age(task_id, days=31)
    assert trim_events(**TERMS) == 3
    assert lab.events(task_id) == []
    assert lab.task(task_id)["where"] == "archived"
    assert trim_events(**TERMS) == 0


def test_young_events_stay(lab: Lab):
    task_id = _ended(lab)
    _age(task_id, days=29)
    assert trim_events(**TERMS) == 0
    assert len(lab.events(task_id)) == 3


def test_the_events_of_an_active_task_stay_however_old(lab: Lab):
    waiting = lab.submit_one(priority=-1)
    held = lab.submit_one()
    lab.claim_attempt(lab.runner_ids[0])
    for task_id in (waiting, held):
        _age(task_id, days=400)
    assert trim_events(**TERMS) == 0
    assert (len(lab.events(waiting)), len(lab.events(held))) == (1, 2)


def test_the_story_of_a_long_task_stays_whole_after_its_end(lab: Lab):
    task_id = lab.submit_one()
    attempt = lab.claim_attempt(lab.runner_ids[0])
    _age(task_id, days=40)
    lab.commit(attempt, lab.runner_ids[0])
    assert trim_events(**TERMS) == 0
    assert [seq for seq, _ in lab.events(task_id)] == [1, 2, 3]


def test_slices_step_over_what_stays(lab: Lab):
    """A queue that has waited for years at the head of the log hides nothing behind it."""
    waiting = [ref.id for ref in lab.submit(5, priority=-1)]
    ended = [_ended(lab) for _ in range(3)]
    for task_id in (*waiting, *ended):
        _age(task_id, days=50)
    assert trim_events(**{**TERMS, "max_events": 2, "max_slices": 3}) == 1
    assert trim_events(**{**TERMS, "max_events": 2, "max_slices": 100}) == 8
    assert all(len(lab.events(task_id)) == 1 for task_id in waiting)
    assert not any(lab.events(task_id) for task_id in ended)


def test_two_do_not_trim_at_once(lab: Lab):
    task_id = _ended(lab)
    _age(task_id, days=31)
    with psycopg.connect(pool_dsn()) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number("sweep.trim_events")])
        assert trim_events(**TERMS) == 0
        other.rollback()
    assert trim_events(**TERMS) == 3


def test_the_job_keeps_the_days_of_the_policy_and_notes_its_run(lab: Lab):
    old, young = _ended(lab), _ended(lab)
    _age(old, days=31)
    _age(young, days=29)
    SweepRun.objects.filter(name="tasks.trim_events").delete()
    periodic.trim_events()
    assert (lab.events(old), len(lab.events(young))) == ([], 3)
    assert SweepRun.objects.filter(name="tasks.trim_events").exists()


def _ended(lab: Lab) -> int:
    """A task with three events: submitted, claimed, ended."""
    task_id = lab.submit_one()
    lab.commit(lab.claim_attempt(lab.runner_ids[0]), lab.runner_ids[0])
    return task_id


def _age(task_id: int, *, days: int) -> None:
    for table, column, key in (
        ("task_events", "at", "task_id"),
        ("archived_tasks", "ended_at", "id"),
    ):
        query(
            f"UPDATE {table} SET {column} = {column} - make_interval(days => %s)"
            f" WHERE {key} = %s RETURNING 1",
            days,
            task_id,
        )
