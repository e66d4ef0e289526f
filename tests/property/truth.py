"""Compare the database with the oracle: every row of an example, after every step of the machine.

Nothing is lost or doubled, every column that decides something has the value the model expects,
the suite's counters equal reality, and the log of each task has no gap.
"""

from time import monotonic, sleep
from typing import Any

from tests.property.machine_lab import MachineLab
from tests.property.model import Model
from tests.property.records import Attempt, Task

PATIENCE_S = 5.0
# One round trip: this runs after every step.
ROWS = """
SELECT (
    SELECT json_agg(json_build_array(id, state, runner_id, lost_runner_id, attempt_id, attempt,
        failures, waiting_on, dependents, cancel_requested_at IS NOT NULL,
        not_before > clock_timestamp(), started_at IS NOT NULL, last_op_id, finish_cancelled,
        ARRAY(SELECT unnest(excluded_runner_ids) ORDER BY 1)) ORDER BY id)
    FROM active_tasks WHERE group_id = $1 AND id > $2
), (
    SELECT json_agg(json_build_array(id, outcome, failures, attempt, attempt_id, op_id) ORDER BY id)
    FROM archived_tasks WHERE group_id = $1 AND id > $2
), (
    SELECT json_agg(json_build_array(id, task_id, runner_id, ending, op_id) ORDER BY id)
    FROM task_attempts WHERE id > $3
), (
    SELECT json_agg(json_build_array(id, session_epoch) ORDER BY id)
    FROM runners WHERE id = ANY ($4)
)
"""
COUNTS = """
SELECT (SELECT count(*) FROM active_tasks WHERE suite_id = $1), count(*),
    count(*) FILTER (WHERE outcome = 0), count(*) FILTER (WHERE outcome IN (1, 2, 3, 5)),
    count(*) FILTER (WHERE outcome = 4)
FROM archived_tasks WHERE suite_id = $1
"""
GAPS = """
SELECT t.id, t.event_seq, count(*), min(e.seq), max(e.seq)
FROM (
    SELECT id, event_seq FROM active_tasks WHERE group_id = $1 AND id > $2
    UNION ALL
    SELECT id, event_seq FROM archived_tasks WHERE group_id = $1 AND id > $2
) t
LEFT JOIN task_events e ON e.task_id = t.id
GROUP BY t.id, t.event_seq
"""
LOG = "SELECT id FROM task_events WHERE suite_id = $1"


def check_rows(lab: MachineLab, model: Model) -> None:
    """Tasks, attempts and sessions are what the model says."""
    [(active, archived, attempts, epochs)] = lab.run(
        ROWS, lab.group_id, lab.first_task_id, lab.first_attempt_id, lab.runner_ids
    )
    tasks = sorted(model.tasks.values(), key=lambda task: task.id)
    assert (active or []) == [_active_row(task) for task in tasks if not task.is_ended]
    assert (archived or []) == [_archived_row(task) for task in tasks if task.is_ended]
    made = sorted(model.attempts.values(), key=lambda attempt: attempt.id)
    assert (attempts or []) == [_attempt_row(attempt) for attempt in made]
    assert epochs == [[runner, epoch] for runner, epoch in sorted(model.epochs.items())]


def check_counts(lab: MachineLab) -> None:
    """The suite's counters are the numbers in the tables."""
    [(pending, ended, succeeded, failed, cancelled)] = lab.run(COUNTS, lab.suite_id)
    assert lab.counts() == {
        "total": pending + ended,
        "pending": pending,
        "succeeded": succeeded,
        "failed": failed,
        "cancelled": cancelled,
    }


def check_logs(lab: MachineLab) -> None:
    """The events of each task are numbered from 1 without a gap; a reader sees each one once."""
    for _, newest, count, first, last in lab.run(GAPS, lab.group_id, lab.first_task_id):
        assert (first, last, count) == (1, newest, newest)
    written = sorted(row[0] for row in lab.run(LOG, lab.suite_id))
    deadline = monotonic() + PATIENCE_S
    while len(lab.seen) < len(written) and monotonic() < deadline:
        before = len(lab.seen)
        lab.read_log()
        if len(lab.seen) == before:
            # Something else in the cluster holds the horizon back, or the reader has skipped one.
            sleep(0.01)
    assert sorted(lab.seen) == written


def _active_row(task: Task) -> list[Any]:
    return [
        task.id,
        task.state,
        task.runner,
        task.lost,
        _attempt_id(task),
        task.attempts,
        task.failures,
        len(task.waits_for),
        task.dependents,
        task.is_cancelled,
        task.is_delayed,
        task.is_started,
        _text(task.last_op),
        task.finish_cancelled,
        sorted(task.excluded),
    ]


def _archived_row(task: Task) -> list[Any]:
    code = None if task.outcome is None else task.outcome.code
    return [task.id, code, task.failures, task.attempts, _attempt_id(task), _text(task.end_op)]


def _attempt_row(attempt: Attempt) -> list[Any]:
    return [
        attempt.id,
        attempt.task.id,
        attempt.runner,
        attempt.ending,
        _text(attempt.op_id),
    ]


def _attempt_id(task: Task) -> int | None:
    return None if task.attempt is None else task.attempt.id


def _text(value: object) -> str | None:
    return None if value is None else str(value)
