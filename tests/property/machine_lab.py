"""The lab of the state machine: prepared statements, a session per runner, an engaged manager.

Statements run as a serving process runs them: by number, prepared, with one plan for all values.
One lab serves many examples; each begins with a suite of its own and an empty queue. That and the
prepared plans are what makes thousands of steps affordable.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection
from psycopg.raw_cursor import RawCursor

from mitosis_protocol.enums import ReportAnswer
from suites.models import TaskSuite
from tasks import store
from tasks.dispatcher import Claim, answer_of, claims_of
from tasks.rows import ClaimRequest
from tasks.statements import Params, Row, Statement, _numbered, _plain, array
from tests.property.lab import Lab, pool_dsn

TAG = "gpu"
TUNING = {"jit": "off", "enable_seqscan": "off", "plan_cache_mode": "force_generic_plan"}
FRESH = (
    # Reaping looks at the whole fleet: what an earlier example left must not be found.
    "DELETE FROM active_tasks",
    "UPDATE group_runners SET role = 1, consent = 1 WHERE role <> 1 OR consent <> 1",
    """
    UPDATE suite_assignments SET released_at = clock_timestamp(), state = 5, release_reason = 0
    WHERE released_at IS NULL
    """,
)


class MachineLab(Lab):
    """Runner 0 is a manager engaged with the suite and has the tag; runner 1 works alone."""

    def __init__(self) -> None:
        self._others: list[psycopg.Connection] = []
        self._is_writing = False
        for name, value in TUNING.items():
            self.run(f"SET {name} = {value}")
        # Django's connections prepare nothing, whatever a cursor asks for.
        self._prepare_threshold = connection.connection.prepare_threshold
        connection.connection.prepare_threshold = 0
        super().__init__(runners=0)
        self.add_runner(tags=[TAG])
        self.add_runner()

    def begin(self) -> None:
        """A new example: nothing waits, both runners connect, the suite is new."""
        for sql in FRESH:
            self.run(sql)
        self.suite_id = TaskSuite.objects.create(
            group_id=self.group_id,
            creator_id=self.creator_id,
            worker_schedule={"worker_count": 1},
            settle_seconds=10,
            linger_seconds=60,
        ).pk
        self.assignment_id = self.engage(self.runner_ids[0])
        [(self.first_task_id,)] = self.run("SELECT nextval('active_tasks_id_seq')")
        [(self.first_attempt_id,)] = self.run("SELECT nextval('task_attempts_id_seq')")
        self._position: dict[str, str | int] = {"xid": "0", "id": 0}
        self.seen: list[int] = []

    def close(self) -> None:
        for other in self._others:
            other.close()
        connection.connection.prepare_threshold = self._prepare_threshold
        for name in TUNING:
            self.run(f"RESET {name}")

    def run(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        """One prepared statement with $1, $2, ... on Django's connection."""
        connection.ensure_connection()
        with RawCursor(connection.connection) as cursor:
            cursor.execute(sql, params, prepare=bool(params))
            return cursor.fetchall() if cursor.description else []

    def fetch(self, statement: Statement[Row], params: Params) -> list[Row]:
        text, names = _numbered(statement.parts)
        values = [_plain(params[name]) for name in names]
        return [statement.row(*found) for found in self.run(text, *values)]

    # --- what only the machine asks ---

    def claim_for_suite(self, request: ClaimRequest) -> Claim:
        params = {**store.claim_params([request]), "assignment_ids": array([self.assignment_id])}
        return claims_of(self.fetch(store.CLAIM_FOR_SUITE, params), 1)[0]

    def progress(self, attempt_id: int, runner_id: int) -> ReportAnswer:
        params = store.progress_params([(attempt_id, runner_id, '{"progress": 1}')])
        [row] = self.fetch(store.APPEND_PROGRESS, params)
        return answer_of(row.answer)

    def read_log(self) -> None:
        """What a reader that follows the suite's log gets next."""
        params = {"suite_id": self.suite_id, **self._position, "max_events": 20}
        for event in self.fetch(store.EVENTS_OF_SUITE, params):
            self._position = {"xid": event.xid, "id": event.id}
            self.seen.append(event.id)

    # --- the world changes ---

    def connect(self, runner_id: int) -> int:
        """A new session: the epoch of runner and lease moves, and the lease runs."""
        [(epoch,)] = self.run(
            "WITH r AS (UPDATE runners SET session_epoch = session_epoch + 1, conn_state = 1"
            " WHERE id = $1 RETURNING id, session_epoch)"
            " UPDATE runner_leases l SET session_epoch = r.session_epoch,"
            " expires_at = clock_timestamp() + interval '1 hour' FROM r WHERE l.runner_id = r.id"
            " RETURNING r.session_epoch",
            runner_id,
        )
        return int(epoch)

    def set_grant(self, runner_id: int, *, role: int, consent: int) -> None:
        self.run(
            "UPDATE group_runners SET role = $2, consent = $3 WHERE runner_id = $1",
            runner_id,
            role,
            consent,
        )

    def end_backoff(self, task_ids: Collection[int]) -> None:
        self.run(
            "UPDATE active_tasks SET not_before = clock_timestamp() WHERE id = ANY ($1)",
            list(task_ids),
        )

    def overrun(self, task_id: int) -> None:
        """The command of a task has been running since yesterday."""
        self.run(
            "UPDATE active_tasks SET started_at = started_at - interval '1 day' WHERE id = $1",
            task_id,
        )

    # --- other sessions ---

    @contextmanager
    def locked(self, task_id: int) -> Iterator[None]:
        """Somebody else is at work on the task while the block runs."""
        other = self._other(0)
        other.execute("SELECT FROM active_tasks WHERE id = %s FOR UPDATE", [task_id])
        try:
            yield
        finally:
            other.rollback()

    def toggle_writer(self) -> None:
        """Somebody writes an event of the suite, and commits it when this is called again."""
        if self._is_writing:
            self.finish_writing()
            return
        self._is_writing = True
        self._other(1).execute(
            "INSERT INTO task_events (kind, group_id, suite_id) VALUES (0, %s, %s)",
            [self.group_id, self.suite_id],
        )

    def finish_writing(self) -> None:
        if self._is_writing:
            self._other(1).commit()
        self._is_writing = False

    def _other(self, number: int) -> psycopg.Connection:
        while len(self._others) <= number:
            self._others.append(psycopg.connect(pool_dsn()))
        return self._others[number]
