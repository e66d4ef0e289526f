"""How fast tasks come in: one by one, a batch of 10,000, an array of 100,000.

The limit is one COPY of rows of that size into a table of the same database, for single ones an
INSERT of such a row, each committed.
"""

import time
import uuid

import psycopg

from benchmarks.live_stack import LiveStack, live_stack
from benchmarks.measure import Row, repeat

BATCH = 10_000
ARRAY = 100_000
SINGLE = 100
TABLE = (
    "DROP TABLE IF EXISTS bench_copy; "
    "CREATE TABLE bench_copy (id bigserial PRIMARY KEY, uuid uuid UNIQUE, group_id bigint, "
    "priority int, tags text[], labels text[], timeout_s int, spec jsonb, "
    "created_at timestamptz DEFAULT now())"
)
COLUMNS = "uuid, group_id, priority, tags, labels, timeout_s, spec"


def run() -> list[Row]:
    with live_stack() as stack:
        copy = repeat(lambda: _copy(stack, BATCH), "s")
        insert = repeat(lambda: _insert(stack), "ms a task")
        single = repeat(lambda: _single(stack), "ms a task")
        batch = repeat(lambda: _batch(stack), "s")
        small_array = repeat(lambda: _array(stack, BATCH), "s")
        large_array = repeat(lambda: _array(stack, ARRAY), "s")
        large_copy = repeat(lambda: _copy(stack, ARRAY), "s")
    return [
        Row("submit: one by one", single, limit=insert),
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
        connection.execute(TABLE)
        began = time.monotonic()
        with connection.cursor().copy(f"COPY bench_copy ({COLUMNS}) FROM STDIN") as copy:
            for number in range(count):
                copy.write_row(_bare_row(number))
        return time.monotonic() - began


def _insert(stack: LiveStack) -> float:
    statement = f"INSERT INTO bench_copy ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s)"
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(TABLE)
        began = time.monotonic()
        for number in range(SINGLE):
            connection.execute(statement, _bare_row(number), prepare=True)
        return 1000 * (time.monotonic() - began) / SINGLE


def _bare_row(number: int) -> tuple[object, ...]:
    spec = f'{{"args": ["true", "{number}"]}}'
    return (uuid.uuid4(), 1, 0, [], ["bench"], 60, spec)
