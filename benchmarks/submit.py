"""How fast tasks come in: one by one, a batch of 10,000, an array of 100,000.

The limit is one COPY of rows of that size into a table of the same database.
"""

import time
import uuid

import psycopg

from benchmarks.live_stack import LiveStack, live_stack
from benchmarks.measure import Row, repeat

BATCH = 10_000
ARRAY = 100_000
SINGLE = 100


def run() -> list[Row]:
    with live_stack() as stack:
        copy = repeat(lambda: _copy(stack, BATCH), "s")
        single = repeat(lambda: _single(stack), "ms a task")
        batch = repeat(lambda: _batch(stack), "s")
        small_array = repeat(lambda: _array(stack, BATCH), "s")
        large_array = repeat(lambda: _array(stack, ARRAY), "s")
        large_copy = repeat(lambda: _copy(stack, ARRAY), "s")
    return [
        Row("submit: one by one", single),
        Row("submit: batch of 10,000", batch, limit=copy, goal="under 5 s"),
        Row("submit: array of 10,000", small_array, limit=copy, goal="at most 5x one COPY"),
        Row("submit: array of 100,000", large_array, limit=large_copy, goal="under 10 s"),
    ]


def _single(stack: LiveStack) -> float:
    began = time.monotonic()
    for _ in range(SINGLE):
        stack.post("/tasks", stack.task())
    return 1000 * (time.monotonic() - began) / SINGLE


def _batch(stack: LiveStack) -> float:
    tasks = [stack.task() for _ in range(BATCH)]
    began = time.monotonic()
    stack.post("/tasks/submit", {"tasks": tasks})
    return time.monotonic() - began


def _array(stack: LiveStack, count: int) -> float:
    began = time.monotonic()
    stack.submit_array(count)
    return time.monotonic() - began


def _copy(stack: LiveStack, count: int) -> float:
    """The same columns' worth of data into a table with the two indexes nobody can do without."""
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bench_copy")
        connection.execute(
            "CREATE TABLE bench_copy (id bigserial PRIMARY KEY, uuid uuid UNIQUE, group_id bigint, "
            "priority int, tags text[], labels text[], timeout_s int, spec jsonb, "
            "created_at timestamptz DEFAULT now())"
        )
        began = time.monotonic()
        with connection.cursor().copy(
            "COPY bench_copy (uuid, group_id, priority, tags, labels, timeout_s, spec) FROM STDIN"
        ) as copy:
            for number in range(count):
                spec = f'{{"args": ["true", "{number}"]}}'
                copy.write_row((uuid.uuid4(), 1, 0, [], ["bench"], 60, spec))
        return time.monotonic() - began
