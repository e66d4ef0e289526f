"""The whole product: arrays of `/bin/true` through a stack with one node agent, durable.

From the submit to the last commit, on a suite whose host is prepared and whose workers wait, as
the workers of every peer do. "limit" is Popen from two processes, measured beside each figure.
Here with four workers; benchmarks.against_peers does two workers, in turns with the peers.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import psutil
import psycopg

from benchmarks.live_stack import LiveStack, live_stack
from benchmarks.measure import REPETITIONS, Figure, Row
from benchmarks.process_costs import Costs
from benchmarks.spawn_limit import COMMAND, spawns_per_s
from mitosis_protocol.limits import max_prefetch

WORKERS: Final = 4
SIZES: Final = (2_000, 10_000)
LIMIT_COUNT: Final = 3_000
PATIENCE_S: Final = 300.0
BARE_SPEC: Final = {"args": [COMMAND, "{n}"], "terminal_output": False}
GOALS: Final = {(2, 10_000): "at least 0.40x Popen"}


@dataclass(frozen=True)
class Suite:
    """One whose host is ready."""

    uuid: str
    id: int


def run() -> list[Row]:
    with live_stack(agents=1) as stack, prepared_suite(stack, WORKERS) as suite:
        return [_row(stack, suite, WORKERS, size) for size in SIZES]


def _row(stack: LiveStack, suite: Suite, workers: int, size: int) -> Row:
    ours: list[float] = []
    limit: list[float] = []
    notes: list[str] = []
    for _ in range(REPETITIONS):
        limit.append(spawns_per_s(2, LIMIT_COUNT))
        costs = Costs(stack.supervisor)
        ours.append(tasks_per_s(stack, suite, size))
        notes.append(f"us of CPU a task: {costs.per_task(size)}")
    notes.append(f"load of the machine afterwards: {psutil.getloadavg()[0]:.1f}")
    return Row(
        f"throughput: {size:,} tasks, {workers} workers",
        Figure(tuple(ours), "a second"),
        limit=Figure(tuple(limit), "a second"),
        goal=GOALS.get((workers, size), ""),
        notes=notes,
    )


@contextmanager
def prepared_suite(stack: LiveStack, workers: int, prefetch: int | None = None) -> Iterator[Suite]:
    """A suite on which a few tasks have run, so that everything is up and warm."""
    most = max_prefetch(workers)
    schedule = {
        "worker_count": workers,
        "task_prefetch_count": most if prefetch is None else prefetch,
    }
    body = {"group_name": stack.group, "worker_schedule": schedule, "linger_seconds": 0}
    uuid = stack.post("/suites", body)["uuid"]
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        row = connection.execute("SELECT id FROM task_suites WHERE uuid = %s", [uuid]).fetchone()
    assert row is not None
    suite = Suite(uuid, row[0])
    tasks_per_s(stack, suite, 50 * workers)
    yield suite
    stack.post(f"/suites/{uuid}/cancel", {"reason": "measured", "cancel_running_tasks": True})


def tasks_per_s(
    stack: LiveStack, suite: Suite, count: int, spec: Mapping[str, object] = BARE_SPEC
) -> float:
    """From the submit to the last commit, by the database's own times."""
    began = time.time()
    stack.submit_array(count, suite_uuid=suite.uuid, task_spec=dict(spec))
    await_last(stack, suite)
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT count(*) FILTER (WHERE outcome = 0), extract(epoch FROM max(ended_at))::float8"
            " FROM archived_tasks WHERE suite_id = %s AND created_at >= to_timestamp(%s)",
            [suite.id, began],
        ).fetchone()
    assert ended is not None
    if ended[0] != count:
        raise AssertionError(f"{ended[0]} of {count} tasks succeeded")
    return float(count / (ended[1] - began))


def await_last(stack: LiveStack, suite: Suite) -> None:
    deadline = time.monotonic() + PATIENCE_S
    active = "SELECT count(*) FROM (SELECT FROM active_tasks WHERE suite_id = %s LIMIT 1) t"
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        while connection.execute(active, [suite.id]).fetchone() != (0,):
            if time.monotonic() > deadline:
                raise TimeoutError(f"suite {suite.uuid} still has tasks after {PATIENCE_S} s")
            time.sleep(0.1)
