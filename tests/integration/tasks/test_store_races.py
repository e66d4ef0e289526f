"""Statements against each other on real sessions: no deadlock, nothing lost, nobody forgotten."""

import random
import threading
import time
import uuid
from collections.abc import Callable

import pytest
from django.db import connection

from core.errors import DatabaseUnavailable
from mitosis_protocol.enums import DependencyCondition, Outcome, ReportAnswer
from tasks.new_task import Dependency, NewTask, RetryPolicy
from tasks.rows import Report, SettleOp
from tasks.services.submit import submit_tasks
from tests.property.lab import SPEC, Lab, lab_fixture, query

lab = pytest.fixture(name="lab")(lab_fixture)

SECONDS = 4.0


def test_everything_at_once_never_deadlocks_and_loses_nothing(lab: Lab):
    for _ in range(3):
        lab.add_runner()
    before = _deadlocks()
    storm = _Storm(lab, seed=20261117)
    storm.blow(
        storm.submit,
        storm.submit,
        *(lambda runner=runner: storm.work(runner) for runner in lab.runner_ids[:3]),
        storm.cancel,
        lambda: storm.lose(lab.runner_ids[4]),
    )
    assert storm.errors == []
    assert storm.submitted > 50
    assert storm.committed > 50
    assert _deadlocks() == before
    _check_truth(lab)
    storm.drain()
    _check_truth(lab)
    assert query("SELECT id FROM active_tasks WHERE group_id = %s", lab.group_id) == []


def test_a_fan_in_settled_by_many_sessions_is_released_once(lab: Lab):
    """Forty upstream tasks of one reduce step end on four sessions at the same moment."""
    graph = [()] * 40 + [tuple(Dependency(n) for n in range(40))]
    *upstream, reduce_id = lab.submit_graph(graph)
    runner = lab.runner_ids[0]
    attempts = [task.attempt_id for task in lab.claim(runner, want=40).tasks]
    gate = threading.Barrier(4)
    answers: list[ReportAnswer] = []

    def settle(share: list[int]) -> None:
        try:
            gate.wait(5)
            answers.extend([_until_settled(lab, attempt, runner) for attempt in share])
        finally:
            connection.close()

    threads = [threading.Thread(target=settle, args=[attempts[n::4]]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == [ReportAnswer.OK] * 40
    row = lab.task(reduce_id)
    assert (row["state"], row["waiting_on"]) == (1, 0)
    assert [kind for _, kind in lab.events(reduce_id)] == [0, 1]
    assert len(upstream) == 40


class _Storm:
    """Threads that do one kind of thing again and again until the time is up."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab = lab
        self.errors: list[BaseException] = []
        self.submitted = 0
        self.committed = 0
        self._dice = random.Random(seed)
        self._until = 0.0

    def blow(self, *actions: Callable[[], None]) -> None:
        self._until = time.monotonic() + SECONDS
        threads = [threading.Thread(target=self._repeat, args=[action]) for action in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS + 30)
            assert not thread.is_alive()

    def submit(self) -> None:
        """Three rows after a few tasks that may be ending at this moment."""
        known = [row["uuid"] for row in self._some("uuid", 3)]
        condition = self._dice.choice(list(DependencyCondition))
        retry = RetryPolicy(max_failures=50, max_attempts=500)
        tasks = [
            NewTask(spec=SPEC, timeout_s=60, retry=retry, depends_on=named)
            for named in (
                tuple(Dependency(upstream, condition) for upstream in known),
                (Dependency(0, DependencyCondition.ANY),),
                (),
            )
        ]
        submit_tasks(
            target=self.lab.target(in_suite=True), creator_id=self.lab.creator_id, tasks=tasks
        )
        self.submitted += len(tasks)

    def work(self, runner: int) -> None:
        for task in self.lab.claim_from_suite(runner, want=4).tasks:
            self.lab.start(task.attempt_id, runner)
            outcome = self._dice.choice([Outcome.SUCCEEDED, Outcome.FAILED])
            answer = _until_settled(self.lab, task.attempt_id, runner, outcome)
            self.committed += answer is ReportAnswer.OK

    def cancel(self) -> None:
        self.lab.cancel(*(row["id"] for row in self._some("id", 2)))
        time.sleep(0.01)

    def lose(self, runner: int) -> None:
        """Claims and dies."""
        self.lab.claim_from_suite(runner, want=3)
        self.lab.expire_lease(runner)
        self.lab.reap()
        self.lab.renew_lease(runner)

    def drain(self) -> None:
        runner = self.lab.runner_ids[0]
        deadline = time.monotonic() + 60
        self.lab.reap(self.lab.runner_ids)
        while tasks := self.lab.claim_from_suite(runner, want=100).tasks:
            assert time.monotonic() < deadline
            for task in tasks:
                _until_settled(self.lab, task.attempt_id, runner)

    def _some(self, column: str, count: int) -> list[dict]:
        return query(
            f"SELECT {column} FROM active_tasks WHERE group_id = %s ORDER BY random() LIMIT %s",
            self.lab.group_id,
            count,
        )

    def _repeat(self, action: Callable[[], None]) -> None:
        try:
            while time.monotonic() < self._until and not self.errors:
                action()
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.errors.append(error)
        finally:
            connection.close()


def _until_settled(
    lab: Lab, attempt: int, runner: int, outcome: Outcome = Outcome.SUCCEEDED
) -> ReportAnswer:
    report = Report(
        attempt_id=attempt,
        runner_id=runner,
        op=SettleOp.COMMIT,
        op_id=uuid.uuid4(),
        outcome=outcome,
        exit_status=0 if outcome is Outcome.SUCCEEDED else 256,
    )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        [settled] = lab.settle([report])
        if settled.answer is not ReportAnswer.RETRY_LATER:
            return settled.answer
        time.sleep(random.uniform(0, 0.01))
    raise DatabaseUnavailable("never settled")


def _check_truth(lab: Lab) -> None:
    assert lab.counts() == lab.real_counts()
    both = query(
        "SELECT a.id FROM active_tasks a JOIN archived_tasks b USING (id) WHERE a.group_id = %s",
        lab.group_id,
    )
    assert both == []
    # Nobody waits for a task that has ended, and every count of edges is right.
    forgotten = query(
        "SELECT t.id FROM active_tasks t WHERE t.group_id = %s AND t.waiting_on <> ("
        " SELECT count(*) FROM task_dependencies d JOIN active_tasks u ON u.id = d.upstream_id"
        " WHERE d.task_id = t.id)",
        lab.group_id,
    )
    assert forgotten == []
    miscounted = query(
        "SELECT t.id FROM active_tasks t WHERE t.group_id = %s AND t.dependents <> ("
        " SELECT count(*) FROM task_dependencies d WHERE d.upstream_id = t.id)",
        lab.group_id,
    )
    assert miscounted == []
    unclosed = query(
        "SELECT a.id FROM task_attempts a JOIN archived_tasks t ON t.id = a.task_id"
        " WHERE t.group_id = %s AND a.ending IS NULL",
        lab.group_id,
    )
    assert unclosed == []


def _deadlocks() -> int:
    query("SELECT pg_stat_force_next_flush()")
    [row] = query("SELECT deadlocks AS n FROM pg_stat_database WHERE datname = current_database()")
    return row["n"]
