"""Procrastinate on PostgreSQL with synchronous commits: one process per worker."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from procrastinate import SyncPsycopgConnector
from stopwatch import Plan, measure
from worker_processes import running

LOOK_S = 0.02
IS_ANY_LEFT = "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
SUCCEEDED = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded' AND id = ANY (%s)"
OTHERS = "SELECT count(*) FROM procrastinate_jobs WHERE status NOT IN ('todo','doing','succeeded')"


class Procrastinate:
    """One batch of jobs; the database says when the last has ended."""

    def __init__(self, task: Any, connection: psycopg.Connection) -> None:
        self._task = task
        self._connection = connection

    def submit(self, count: int) -> list[int]:
        jobs: list[int] = self._task.batch_defer(*[{} for _ in range(count)])
        return jobs

    def collect(self, submitted: list[int], deadline: float) -> int:
        while self._ask(IS_ANY_LEFT) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        if self._ask(OTHERS):
            raise SystemExit("a job failed")
        return self._ask(SUCCEEDED, submitted)

    def _ask(self, statement: str, *parameters: object) -> int:
        row = self._connection.execute(statement, parameters).fetchone()
        if row is None:
            raise SystemExit("PostgreSQL did not answer")
        return int(row[0])


@contextmanager
def start(plan: Plan) -> Iterator[Procrastinate]:
    os.environ["PEER_STORE"] = plan.store
    # Known only now where the store is.
    import procrastinate_app  # noqa: PLC0415

    connector = SyncPsycopgConnector(conninfo=plan.store)
    words = ["procrastinate", "--app", "procrastinate_app.app", "worker", "--concurrency", "1"]
    with (
        procrastinate_app.app.replace_connector(connector) as app,
        app.open(),
        psycopg.connect(plan.store, autocommit=True) as connection,
    ):
        app.schema_manager.apply_schema()
        with running(*[words] * plan.workers, store=plan.store):
            yield Procrastinate(procrastinate_app.task, connection)


if __name__ == "__main__":
    measure(start)
