"""A small world on a real PostgreSQL: one group, two suites, a few runners, and every statement.

Each Lab makes rows of its own and looks at nothing else, so many can live in one database. Calls
go through Django's connection with the production SQL; nothing here imitates it.
"""

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from django.db import connection, transaction
from psycopg.conninfo import make_conninfo

from core.pg import close_pool, open_pool
from managers.models import NodeManager, SuiteAssignment
from managers.services.early_end import close_emptied_suites
from mitosis_protocol.enums import AssignmentState, Outcome, ReportAnswer, RunnerKind
from mitosis_protocol.specs import TaskSpec
from runners.models import Runner
from suites.models import TaskSuite
from tasks import store
from tasks.dispatcher import (
    Claim,
    Held,
    Settled,
    answer_of,
    claims_of,
    close_dispatcher,
    settled_of,
)
from tasks.new_task import Dependency, NewTask, RetryPolicy
from tasks.rows import ClaimRequest, Report, SettleOp, TaskRef
from tasks.services.submit import Target, submit_tasks
from tasks.statements import Params, Row, Statement, array, compose

Answer = TypeVar("Answer")

SPEC = TaskSpec(args=["/bin/true"])


class Lab:
    """Runners are 0, 1, ...; tasks are their internal ids."""

    def __init__(self, runners: int = 2, *, max_failures: int = 6) -> None:
        self.name = f"lab-{uuid.uuid4().hex[:12]}"
        self.max_failures = max_failures
        self.creator_id, self.group_id = self._make_owner()
        self.suite_id = TaskSuite.objects.create(
            group_id=self.group_id,
            creator_id=self.creator_id,
            worker_schedule={"worker_count": 1},
            settle_seconds=10,
            linger_seconds=60,
        ).pk
        self.runner_ids: list[int] = []
        for _ in range(runners):
            self.add_runner()

    # --- the world ---

    def _make_owner(self) -> tuple[int, int]:
        user = _one(
            "INSERT INTO users (username, password, state, is_staff) VALUES (%s, 'x', 0, false)"
            " RETURNING id",
            self.name,
        )
        group = _one(
            "INSERT INTO groups (name, creator_id, state) VALUES (%s, %s, 0) RETURNING id",
            self.name,
            user,
        )
        return user, group

    def add_runner(
        self, *, tags: Sequence[str] = (), role: int = 1, consent: int = 1, lease_s: float = 3600
    ) -> int:
        runner = Runner.objects.create(
            owner_id=self.creator_id, kind=RunnerKind.DIRECT, tags=sorted(tags)
        )
        _execute(
            "INSERT INTO runner_leases (runner_id, session_epoch, expires_at)"
            " VALUES (%s, 0, clock_timestamp() + make_interval(secs => %s))",
            runner.pk,
            lease_s,
        )
        _execute(
            "INSERT INTO group_runners (group_id, runner_id, role, consent) VALUES (%s,%s,%s,%s)",
            self.group_id,
            runner.pk,
            role,
            consent,
        )
        self.runner_ids.append(runner.pk)
        return runner.pk

    def engage(self, runner_id: int) -> int:
        """An assignment of the runner, as a manager, to the suite."""
        NodeManager.objects.get_or_create(runner_id=runner_id)
        return SuiteAssignment.objects.create(
            suite_id=self.suite_id,
            manager_id=runner_id,
            state=AssignmentState.EXECUTING,
            lease_expires_at="2100-01-01T00:00:00Z",
        ).pk

    def expire_lease(self, runner_id: int, *, ago_s: float = 3600) -> None:
        _execute(
            "UPDATE runner_leases SET expires_at = clock_timestamp() - make_interval(secs => %s)"
            " WHERE runner_id = %s",
            ago_s,
            runner_id,
        )

    def renew_lease(self, runner_id: int) -> None:
        _execute(
            "UPDATE runner_leases SET expires_at = clock_timestamp() + interval '1 hour'"
            " WHERE runner_id = %s",
            runner_id,
        )

    def fetch(self, statement: Statement[Row], params: Params) -> list[Row]:
        """Every statement of this lab goes through here."""
        return statement.fetch_sync(params)

    # --- submit ---

    def submit(self, count: int = 1, *, in_suite: bool = False, **task: Any) -> list[TaskRef]:
        task.setdefault("retry", retry_policy(self.max_failures))
        tasks = [NewTask(spec=SPEC, timeout_s=60, **task) for _ in range(count)]
        return submit_tasks(target=self.target(in_suite), creator_id=self.creator_id, tasks=tasks)

    def submit_one(self, **task: Any) -> int:
        return self.submit(1, **task)[0].id

    def submit_graph(
        self, depends_on: Sequence[tuple[Dependency, ...]], *, in_suite: bool = False
    ) -> list[int]:
        tasks = [
            NewTask(
                spec=SPEC,
                timeout_s=60,
                depends_on=named,
                retry=retry_policy(self.max_failures),
            )
            for named in depends_on
        ]
        refs = submit_tasks(target=self.target(in_suite), creator_id=self.creator_id, tasks=tasks)
        return [ref.id for ref in refs]

    def target(self, in_suite: bool = False) -> Target:
        return Target(self.group_id, self.suite_id if in_suite else None)

    # --- claim ---

    def claim(
        self,
        runner_id: int,
        want: int = 1,
        *,
        claim_id: uuid.UUID | None = None,
        epoch: int | None = None,
        exclusive: bool = False,
    ) -> Claim:
        return self.claim_all(
            [
                ClaimRequest(
                    runner_id=runner_id,
                    claim_id=claim_id or uuid.uuid4(),
                    want=want,
                    session_epoch=epoch,
                    is_exclusive=exclusive,
                )
            ]
        )[0]

    def claim_all(self, requests: Sequence[ClaimRequest]) -> list[Claim]:
        rows = self.fetch(store.CLAIM, store.claim_params(requests))
        return claims_of(rows, len(requests))

    def claim_from_suite(self, runner_id: int, want: int = 1) -> Claim:
        """The production claim with another way in: the suite's queue instead of the groups'."""
        request = ClaimRequest(runner_id=runner_id, claim_id=uuid.uuid4(), want=want)
        rows = _SuiteClaim(self.suite_id).fetch_sync(store.claim_params([request]))
        return claims_of(rows, 1)[0]

    def claim_attempt(self, runner_id: int, **how: Any) -> int:
        """The attempt id of the one task there is to claim."""
        [task] = self.claim(runner_id, **how).tasks
        return task.attempt_id

    # --- report ---

    def start(self, attempt_id: int, runner_id: int) -> ReportAnswer:
        [row] = self.fetch(store.START, store.start_params([(attempt_id, runner_id)]))
        return answer_of(row.answer)

    def finish(self, attempt_id: int, runner_id: int, *, cancelled: bool = False) -> ReportAnswer:
        held = Held(attempt_id, runner_id, cancelled)
        [row] = self.fetch(
            store.FINISH,
            store.finish_params([(held.attempt_id, held.runner_id, held.is_cancelled)]),
        )
        return answer_of(row.answer)

    def report(self, op: SettleOp, attempt_id: int, runner_id: int, **more: Any) -> Settled:
        more.setdefault("op_id", uuid.uuid4())
        return self.settle([Report(attempt_id=attempt_id, runner_id=runner_id, op=op, **more)])[0]

    def settle(self, reports: Sequence[Report], *, backoff_s: float = 0) -> list[Settled]:
        params = store.settle_params(reports, backoff_s=backoff_s, backoff_max_s=backoff_s)
        return [settled_of(row) for row in self.fetch(store.SETTLE, params)]

    def commit(
        self,
        attempt_id: int,
        runner_id: int,
        outcome: Outcome = Outcome.SUCCEEDED,
        **more: Any,
    ) -> Settled:
        more.setdefault("exit_status", 0 if outcome is Outcome.SUCCEEDED else 256)
        return self.report(SettleOp.COMMIT, attempt_id, runner_id, outcome=outcome, **more)

    def adopt(
        self, attempt_ids: Collection[int], runner_id: int, *, assignment_id: int | None = None
    ) -> list[ReportAnswer]:
        rows = self.fetch(store.ADOPT, store.adopt_params(runner_id, attempt_ids, assignment_id))
        return [answer_of(row.answer) for row in rows]

    def inventory(
        self, runner_id: int, attempt_ids: Collection[int], *, settle_s: float = 0
    ) -> dict[int, str]:
        params = store.inventory_params({runner_id: attempt_ids}, settle_s=settle_s)
        return {row.attempt_id: row.found for row in self.fetch(store.INVENTORY, params)}

    # --- the coordinator's own moves ---

    def cancel(self, *task_ids: int, held: bool = True) -> list[str]:
        params = {"task_ids": array(task_ids), "held": held, "reason": "a test"}
        return [row.answer for row in self.fetch(store.CANCEL, params)]

    def reap(self, runner_ids: Collection[int] | None = None, **more: Any) -> list[str]:
        params = {
            "runner_ids": None if runner_ids is None else array(runner_ids),
            "grace_s": 5,
            "max_runners": 20,
            "max_tasks": 1000,
            "charge": True,
            "reason": "a test",
            "adoptable": runner_ids is None,
        }
        return [row.answer for row in self.fetch(store.REAP, {**params, **more})]

    def end_overdue(self, **more: Any) -> list[str]:
        params = {
            "cancel_silence_s": 30,
            "grace_s": 60,
            "exclusive_grace_s": 600,
            "max_tasks": 1000,
        }
        return [row.answer for row in self.fetch(store.END_OVERDUE, {**params, **more})]

    # --- what is true ---

    def task(self, task_id: int) -> dict[str, Any]:
        """The row, wherever it is; `where` says in which table."""
        for table in ("active_tasks", "archived_tasks"):
            rows = query(f"SELECT * FROM {table} WHERE id = %s", task_id)
            if rows:
                return {**rows[0], "where": table.removesuffix("_tasks")}
        raise LookupError(f"task {task_id} is in neither table")

    def attempt(self, attempt_id: int) -> dict[str, Any]:
        [row] = query("SELECT * FROM task_attempts WHERE id = %s", attempt_id)
        return row

    def events(self, task_id: int) -> list[tuple[int, int]]:
        """(seq, kind) in order."""
        rows = query("SELECT seq, kind FROM task_events WHERE task_id = %s ORDER BY seq", task_id)
        return [(row["seq"], row["kind"]) for row in rows]

    def counts(self) -> dict[str, int]:
        found = self.fetch(store.SUITE_COUNTS, {"suite_ids": array([self.suite_id])})
        names = ("total", "pending", "succeeded", "failed", "cancelled")
        return {name: getattr(found[0], name) if found else 0 for name in names}

    def real_counts(self) -> dict[str, int]:
        """The same numbers from the tables themselves."""
        [row] = query(
            "SELECT (SELECT count(*) FROM active_tasks WHERE suite_id = %(s)s)"
            "  + (SELECT count(*) FROM archived_tasks WHERE suite_id = %(s)s) AS total,"
            " (SELECT count(*) FROM active_tasks WHERE suite_id = %(s)s) AS pending,"
            " count(*) FILTER (WHERE outcome = 0) AS succeeded,"
            " count(*) FILTER (WHERE outcome IN (1, 2, 3, 5)) AS failed,"
            " count(*) FILTER (WHERE outcome = 4) AS cancelled"
            " FROM archived_tasks WHERE suite_id = %(s)s",
            {"s": self.suite_id},
        )
        return row


def lab_fixture(transactional_db: None) -> Lab:
    """As a fixture: rows are committed, other sessions see them, a flush takes them away."""
    return Lab()


class _SuiteClaim(Statement[Any]):
    """claim/groups.sql with the queue of one suite in the place of the groups' queues."""

    def __init__(self, suite_id: int) -> None:
        super().__init__(store.CLAIM.row, *store.CLAIM.parts)
        self._queue_id = -suite_id

    def fetch_sync(self, params: Any) -> list[Any]:
        text = compose(self.parts)
        start = text.index("ARRAY(\n            SELECT gr.group_id")
        end = text.index(") AS queue_ids", start)
        text = text[:start] + f"(ARRAY[{self._queue_id}]::bigint[]" + text[end:]
        with connection.cursor() as cursor:
            cursor.execute(text, dict(params))
            return [self.row(*found) for found in cursor.fetchall()]


def retry_policy(max_failures: int, **more: Any) -> RetryPolicy:
    return RetryPolicy(max_failures=max_failures, **more)


def query(sql: str, *params: Any) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params[0] if params and isinstance(params[0], dict) else params)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _one(sql: str, *params: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchone()[0]


def _execute(sql: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)


def pool_dsn() -> str:
    """The test database, for connections that Django does not know."""
    given = connection.settings_dict
    return make_conninfo(
        host=given["HOST"],
        port=given["PORT"] or None,
        dbname=given["NAME"],
        user=given["USER"],
        password=given["PASSWORD"] or None,
    )


def on_pool(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Run asynchronous code with the pool and the dispatcher of a serving process."""

    async def serve() -> Answer:
        await open_pool(pool_dsn())
        try:
            return await call()
        finally:
            await close_emptied_suites()
            await close_dispatcher()
            await close_pool()

    return asyncio.run(serve())


class locked_elsewhere:  # noqa: N801 - reads as a phrase in a with statement
    """Another session holds the row's lock for as long as the block runs."""

    def __init__(self, task_id: int) -> None:
        self._task_id = task_id
        self._is_locked = threading.Event()
        self._may_end = threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def __enter__(self) -> None:
        self._thread.start()
        assert self._is_locked.wait(5)

    def __exit__(self, *_: object) -> None:
        self._may_end.set()
        self._thread.join(5)

    def _hold(self) -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(
                    "SELECT id FROM active_tasks WHERE id = %s FOR UPDATE", [self._task_id]
                )
                self._is_locked.set()
                self._may_end.wait(5)
        finally:
            connection.close()
