"""Does it stay fast when it is full: the same calls on a database that grows in stages.

1,000, 10,000 and 100,000 queued tasks with next to nothing archived, then 1,000,000 archived ones
on top. "limit" is the figure of the first stage of the same run: the ratio says what growth costs.
"""

import time
from collections.abc import Callable

import httpx2
import psycopg

from benchmarks.live_stack import LiveStack, live_stack
from benchmarks.measure import Figure, Row, repeat

QUEUED = (1_000, 10_000, 100_000)
ARCHIVED = 1_000_000
CYCLES = 150
READS = 40
CYCLE = "fetch and commit"
CYCLE_GOAL = "at most 1.5x the first stage"
READ_GOAL = "at most 3x the first stage"


def run() -> list[Row]:
    stages: dict[str, dict[str, Figure]] = {}
    with live_stack() as stack:
        worker = stack.register_worker()
        queued = 0
        for size in QUEUED:
            _queue(stack, size - queued)
            queued = size
            stages[f"{size:,} queued"] = _measure(stack, worker)
        _archive(stack)
        stages[f"{queued:,} queued, {ARCHIVED:,} archived"] = _measure(stack, worker)
        worker.close()
    first, *later = stages.items()
    rows = [Row(f"growth: {name}, {first[0]}", figure) for name, figure in first[1].items()]
    for stage, figures in later:
        rows += [
            Row(f"growth: {name}, {stage}", figure, limit=first[1][name], goal=_goal(name))
            for name, figure in figures.items()
        ]
    return rows


def _goal(name: str) -> str:
    return CYCLE_GOAL if name == CYCLE else READ_GOAL


def _measure(stack: LiveStack, worker: httpx2.Client) -> dict[str, Figure]:
    _top_up(stack)
    # High priority: so that the cycle sees what was submitted last, whatever is queued.
    calls: dict[str, Callable[[], float]] = {
        CYCLE: lambda: _cycles(stack, worker),
        "list 100 tasks": lambda: _reads(stack, {"limit": 100, "offset": 0, "count": False}),
        "list by label": lambda: _reads(
            stack, {"labels": ["marked"], "limit": 100, "count": False}
        ),
        "list finished": lambda: _reads(
            stack, {"states": ["Finished"], "limit": 100, "count": False}
        ),
    }
    return {name: repeat(call, "ms") for name, call in calls.items()}


def _top_up(stack: LiveStack) -> None:
    marked = [stack.task(labels=["marked"], priority=9) for _ in range(4 * CYCLES)]
    stack.post("/tasks/submit", {"tasks": marked})


def _cycles(stack: LiveStack, worker: httpx2.Client) -> float:
    """Milliseconds per task: fetch, then commit straight from running."""
    began = time.monotonic()
    for _ in range(CYCLES):
        task = worker.get("/workers/tasks").raise_for_status().json()
        report = {"id": task["id"], "op": {"Commit": {"exit_status": 0, "msg": None}}}
        worker.post("/workers/tasks", json=report).raise_for_status()
    return 1000 * (time.monotonic() - began) / CYCLES


def _reads(stack: LiveStack, body: dict[str, object]) -> float:
    began = time.monotonic()
    for _ in range(READS):
        stack.post("/tasks/query", body)
    return 1000 * (time.monotonic() - began) / READS


def _queue(stack: LiveStack, count: int) -> None:
    stack.submit_array(count)
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE active_tasks")


def _archive(stack: LiveStack) -> None:
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        _copy_archive(connection)
        connection.execute("VACUUM ANALYZE archived_tasks")


def _copy_archive(connection: psycopg.Connection) -> None:
    """A million rows like one that a worker really finished."""
    columns = [
        row[0]
        for row in connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE is_generated = 'NEVER' "
            "AND table_name = 'archived_tasks' AND table_schema = current_schema()"
        )
    ]
    fresh = {
        "id": "t.id + 1000000000 + g",
        "uuid": "gen_random_uuid()",
        "number": "t.number + 1000000000 + g",
        "attempt_id": "t.attempt_id + 1000000000 + g",
        "op_id": "gen_random_uuid()",
        "labels": "ARRAY['grown', 'n' || (g % 1000)]",
    }
    chosen = ", ".join(fresh.get(name, f't."{name}"') for name in columns)
    named = ", ".join(f'"{name}"' for name in columns)
    connection.execute(
        f"INSERT INTO archived_tasks ({named}) SELECT {chosen} "
        "FROM (SELECT * FROM archived_tasks ORDER BY id LIMIT 1) t, "
        f"generate_series(1, {ARCHIVED}) g"
    )
