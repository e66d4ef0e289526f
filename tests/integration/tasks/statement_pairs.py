"""Two statements about one task at the same time: what a pair is, and how one is run.

The first statement runs in a transaction that stays open; the second runs on another connection
until it is done or waits for a lock; then the first commits. Whoever was told to come again does.
The end has to be one of the two that the same statements reach one after the other.
"""

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

from django.db import connection, transaction
from psycopg.raw_cursor import RawCursor

from mitosis_protocol.enums import Outcome, ReportAnswer
from suites.models import TaskSuite
from tasks import store
from tasks.dispatcher import answer_of, claims_of
from tasks.new_task import Dependency, NewTask
from tasks.rows import ClaimRequest, SettleOp
from tasks.services.counts import fold_counts
from tasks.services.submit import submit_tasks
from tasks.statements import Params, Row, Statement, _numbered, _plain, array
from tests.property.lab import SPEC, Lab, query
from tests.property.machine_lab import TUNING

Stage = Literal["ready", "running", "lost"]
STAGES: Final[tuple[Stage, ...]] = ("ready", "running", "lost")
# Tables whose rows come and go, and tables whose rows only change.
MOVING: Final = (
    "active_tasks", "archived_tasks", "task_attempts", "task_dependencies", "suite_count_deltas",
    "task_events",
    "task_execution_failures",
)  # fmt: skip
CHANGING: Final = {
    "runners": ("id", "session_epoch", "conn_state"),
    "runner_leases": ("runner_id", "session_epoch", "expires_at"),
}
PATIENCE_S: Final = 20.0
# Told to come again: somebody else is at work on the same row.
BUSY: Final = frozenset({"busy", "again", ReportAnswer.RETRY_LATER.value})


class PairLab(Lab):
    """One task `T` with a successor; runner 0 had or has it, runner 1 would take it."""

    def begin(self, stage: Stage) -> None:
        """Once per stage; `restore` brings the same rows back before each pair."""
        with connection.cursor() as cursor:
            # Django clears no table that it does not manage: a test before us may have left
            # hundreds of thousands of events, and `restore` copies what is there.
            cursor.execute("TRUNCATE task_events")
        self._set_up(stage)
        with connection.cursor() as cursor:
            cursor.execute("".join(_keep(table) for table in (*MOVING, *CHANGING)))
        self.start_state = self.end_state()

    def restore(self) -> None:
        """Far quicker than making the rows anew, and the pairs are many."""
        with connection.cursor() as cursor:
            cursor.execute(_restoration())

    def _set_up(self, stage: Stage) -> None:
        self.suite_id = TaskSuite.objects.create(
            group_id=self.group_id, creator_id=self.creator_id,
            worker_schedule={"worker_count": 1}, settle_seconds=10, linger_seconds=60,
        ).pk  # fmt: skip
        self.holder, self.rival = self.runner_ids
        for runner in self.runner_ids:
            self.renew_lease(runner)
        self.assignments = {runner: self.engage(runner) for runner in self.runner_ids}
        [self.task_id, _] = self.submit_graph([(), (Dependency(0),)], in_suite=True)
        self.task_uuid = self.task(self.task_id)["uuid"]
        self.attempt_id = self._claimed_by_holder()
        if stage == "ready":
            self.report(SettleOp.RELEASE, self.attempt_id, self.holder)
            return
        self.start(self.attempt_id, self.holder)
        # Over every deadline there is, so that both sweeps have something to say.
        query(
            "UPDATE active_tasks SET started_at = started_at - interval '1 day' WHERE id = %s"
            " RETURNING 1",
            self.task_id,
        )
        self.expire_lease(self.holder)
        if stage == "lost":
            self.reap()
            self.renew_lease(self.holder)

    def fetch(self, statement: Statement[Row], params: Params) -> list[Row]:
        """As a serving process runs it: prepared, with one plan for all values, on this thread."""
        text, names = _numbered(statement.parts)
        values = [_plain(params[name]) for name in names]
        connection.ensure_connection()
        with RawCursor(connection.connection) as cursor:
            cursor.execute(text, values, prepare=True)
            return [statement.row(*found) for found in cursor.fetchall()]

    def claim_for(self, runner: int) -> str:
        request = ClaimRequest(runner_id=runner, claim_id=uuid.uuid4(), want=1)
        params = {
            **store.claim_params([request]),
            "assignment_ids": array([self.assignments[runner]]),
        }
        rows = self.fetch(store.CLAIM_FOR_SUITE, params)
        tasks = claims_of(rows, 1)[0].tasks
        return f"attempt {tasks[0].attempt}" if tasks else rows[0].verdict

    def settled(self, op: SettleOp, **more: Any) -> str:
        return self.report(op, self.attempt_id, self.holder, **more).answer.value

    def follow(self) -> str:
        """Another task that waits for T, which may be ending at this moment."""
        task = NewTask(spec=SPEC, timeout_s=60, depends_on=(Dependency(self.task_uuid),))
        submit_tasks(target=self.target(in_suite=True), creator_id=self.creator_id, tasks=[task])
        return "ok"

    def progress(self) -> str:
        item = (self.attempt_id, self.holder, '{"progress": 1}')
        [row] = self.fetch(store.APPEND_PROGRESS, store.progress_params([item]))
        return answer_of(row.answer).value

    def end_state(self) -> tuple[Any, ...]:
        """Everything that decides something, without ids and times."""
        tasks = query(
            "SELECT 'active' AS place, id, state, NULL::int AS outcome, attempt, failures,"
            " runner_id, lost_runner_id, waiting_on, dependents,"
            " cancel_requested_at IS NOT NULL AS stopping, started_at IS NOT NULL AS started"
            " FROM active_tasks WHERE suite_id = %(s)s UNION ALL"
            " SELECT 'archived', id, state, outcome, attempt, failures, runner_id, NULL,"
            " NULL, NULL, NULL, NULL FROM archived_tasks WHERE suite_id = %(s)s ORDER BY 2",
            {"s": self.suite_id},
        )
        attempts = query(
            "SELECT attempt, runner_id, ending FROM task_attempts WHERE task_id = %s ORDER BY 1",
            self.task_id,
        )
        return (
            *(tuple(v for name, v in row.items() if name != "id") for row in tasks),
            *(tuple(row.values()) for row in attempts),
        )

    def check_truth(self) -> None:
        """What holds after any pair: counters, edges and attempts are right."""
        assert self.counts() == self.real_counts()
        wrong = query(
            "SELECT 'twice' AS what, a.id FROM active_tasks a JOIN archived_tasks b USING (id)"
            " UNION ALL SELECT 'open attempt', a.id FROM task_attempts a LEFT JOIN active_tasks t"
            "  ON t.id = a.task_id WHERE a.ending IS NULL AND t.attempt_id IS DISTINCT FROM a.id"
            " UNION ALL SELECT 'edges', t.id FROM active_tasks t WHERE t.waiting_on <> ("
            "  SELECT count(*) FROM task_dependencies d JOIN active_tasks u"
            "  ON u.id = d.upstream_id WHERE d.task_id = t.id)"
            # A silent runner may be fenced although its last task has just ended; the reverse,
            # a loss without a fence, would let the old session go on.
            " UNION ALL SELECT 'not fenced', r.id FROM runners r JOIN active_tasks t"
            "  ON t.lost_runner_id = r.id WHERE r.session_epoch = 0"
        )
        assert wrong == []

    def _claimed_by_holder(self) -> int:
        assert self.claim_for(self.holder) == "attempt 1"
        return int(self.task(self.task_id)["attempt_id"])


@dataclass(frozen=True)
class Hot:
    """A statement of the hot path, as something that one session does."""

    name: str
    run: Callable[[PairLab], str]
    # A sweep passes over what is locked and comes again by itself.
    is_sweep: bool = False


def _names(answers: list[str]) -> str:
    return ",".join(sorted(answers))


HOT: Final = (
    Hot("claim", lambda lab: lab.claim_for(lab.rival)),
    Hot("start", lambda lab: lab.start(lab.attempt_id, lab.holder).value),
    Hot("finish", lambda lab: lab.finish(lab.attempt_id, lab.holder).value),
    Hot("commit", lambda lab: lab.settled(
        SettleOp.COMMIT, outcome=Outcome.SUCCEEDED, exit_status=0)),
    Hot("commit failure", lambda lab: lab.settled(
        SettleOp.COMMIT, outcome=Outcome.FAILED, exit_status=256)),
    Hot("abort", lambda lab: lab.settled(SettleOp.ABORT, charge=1)),
    Hot("release", lambda lab: lab.settled(SettleOp.RELEASE)),
    Hot("crash", lambda lab: lab.settled(SettleOp.FAILURE, charge=1)),
    Hot("cancel", lambda lab: _names(lab.cancel(lab.task_id))),
    Hot("adopt", lambda lab: lab.adopt(
        [lab.attempt_id], lab.holder, assignment_id=lab.assignments[lab.holder])[0].value),
    Hot("progress", PairLab.progress),
    Hot("submit", PairLab.follow),
    Hot("remove runner", lambda lab: _names(lab.reap([lab.holder])), is_sweep=True),
    Hot("reap", lambda lab: _names(lab.reap()), is_sweep=True),
    Hot("overdue", lambda lab: _names(lab.end_overdue()), is_sweep=True),
    Hot("fold", lambda _lab: str(fold_counts(max_rows=1000) >= 0), is_sweep=True),
)  # fmt: skip


class Session(threading.Thread):
    """A connection of its own, which does one thing after another."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._work: queue.Queue[tuple[Callable[[], Any], Future[Any]] | None] = queue.Queue()
        self.start()
        [row] = self.do(lambda: query("SELECT pg_backend_pid() AS pid")).result(PATIENCE_S)
        self.pid = int(row["pid"])

    def do(self, action: Callable[[], Any]) -> "Future[Any]":
        done: Future[Any] = Future()
        self._work.put((action, done))
        return done

    def close(self) -> None:
        self._work.put(None)
        self.join(PATIENCE_S)

    def run(self) -> None:
        try:
            tune()
            while (item := self._work.get()) is not None:
                action, done = item
                try:
                    done.set_result(action())
                except Exception as error:  # noqa: BLE001 - raised where it is awaited
                    done.set_exception(error)
        finally:
            connection.close()


def tune(*, how: str = "SET") -> None:
    """The settings under which a serving process plans these statements, or `RESET` them."""
    for name, value in TUNING.items():
        with connection.cursor() as cursor:
            cursor.execute(f"SET {name} = {value}" if how == "SET" else f"RESET {name}")


@contextmanager
def sessions() -> Iterator[tuple[Session, Session]]:
    tune()
    pair = Session(), Session()
    try:
        yield pair
    finally:
        tune(how="RESET")
        for one in pair:
            one.close()


def one_after_the_other(lab: PairLab, first: Hot, second: Hot) -> tuple[Any, ...]:
    """In a transaction that is taken back: nobody else has to see it."""
    with transaction.atomic():
        first.run(lab)
        second.run(lab)
        _come_again(lab, first, second)
        end = lab.end_state()
        transaction.set_rollback(True)
    return end


def at_once(
    lab: PairLab, first: Hot, second: Hot, pair: tuple[Session, Session]
) -> tuple[Any, ...]:
    """`first` is in its transaction when `second` begins."""
    lab.restore()
    ours, theirs = pair
    may_commit = threading.Event()
    has_run: Future[str] = Future()

    def hold() -> None:
        with transaction.atomic():
            has_run.set_result(first.run(lab))
            assert may_commit.wait(PATIENCE_S)

    holding = ours.do(hold)
    try:
        _either(has_run, holding)
        answer = theirs.do(lambda: second.run(lab))
        _until_done_or_blocked(answer, theirs.pid)
    finally:
        may_commit.set()
    holding.result(PATIENCE_S)
    said = answer.result(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while not BUSY.isdisjoint(said.split(",")):
        assert time.monotonic() < deadline, f"{second.name} is busy for ever"
        said = second.run(lab)
    _come_again(lab, first, second)
    return lab.end_state()


def _come_again(lab: PairLab, first: Hot, second: Hot) -> None:
    for sweep in (second, first):
        if sweep.is_sweep:
            sweep.run(lab)


def _either(has_run: "Future[str]", holding: "Future[Any]") -> None:
    """Until the first statement has run; its error if it failed instead."""
    deadline = time.monotonic() + PATIENCE_S
    while not has_run.done():
        if holding.done():
            holding.result()
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def _until_done_or_blocked(answer: "Future[str]", pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not answer.done():
        [row] = query("SELECT cardinality(pg_blocking_pids(%s)) AS n", pid)
        if row["n"]:
            return
        assert time.monotonic() < deadline


def _keep(table: str) -> str:
    return (
        f"DROP TABLE IF EXISTS pg_temp.kept_{table};"
        f"CREATE TEMP TABLE kept_{table} AS SELECT * FROM {table};"
    )


@cache
def _restoration() -> str:
    statements = []
    for table in MOVING:
        names = ", ".join(_columns(table))
        statements.append(f"DELETE FROM {table}")
        statements.append(f"INSERT INTO {table} ({names}) SELECT {names} FROM kept_{table}")
    for table, (key, *changed) in CHANGING.items():
        values = ", ".join(f"{name} = k.{name}" for name in changed)
        statements.append(
            f"UPDATE {table} t SET {values} FROM kept_{table} k WHERE t.{key} = k.{key}"
        )
    return "; ".join(statements)


def _columns(table: str) -> list[str]:
    rows = query(
        "SELECT column_name AS name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND table_name = %s AND is_generated = 'NEVER'",
        table,
    )
    return [row["name"] for row in rows]
