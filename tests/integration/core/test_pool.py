"""The async pool on a real server that is slow, locked, killed or not there."""

import asyncio
import time
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import class_row

from core import pg
from core.errors import DatabaseUnavailable
from core.pg import PgPool

BACKENDS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
    "AND application_name = 'mitosis-pool' AND datname = current_database() AND state = %s"
)


@dataclass
class Pair:
    a: int
    b: str


async def test_statements_return_rows(pool):
    assert await pool.fetch("SELECT %s::int, %s", [1, "x"]) == [(1, "x")]
    assert await pool.fetch("SELECT %(a)s::int AS a, 'y' AS b", {"a": 2}, row=class_row(Pair)) == [
        Pair(2, "y")
    ]
    assert await pool.execute("SELECT generate_series(1, 3)") == 3


async def test_every_session_has_the_house_timeouts(pool):
    shown = await pool.fetch(
        "SELECT current_setting('lock_timeout'), current_setting('statement_timeout'), "
        "current_setting('idle_in_transaction_session_timeout')"
    )
    assert shown == [("2s", "15s", "30s")]


async def test_options_of_the_operator_win(dsn):
    pool = PgPool(make_conninfo(dsn, options="-c lock_timeout=7s"))
    await pool.open()
    try:
        assert await pool.fetch("SHOW lock_timeout") == [("7s",)]
        assert await pool.fetch("SHOW statement_timeout") == [("15s",)]
    finally:
        await pool.close()


async def test_one_statement_is_one_transaction(pool, other):
    await pool.execute("CREATE TABLE pool_trial (n int)")
    try:
        async with pool.connection() as conn:
            await conn.execute("INSERT INTO pool_trial VALUES (1)")
            # Committed by itself, although the connection is still in our hands.
            assert other.execute("SELECT n FROM pool_trial").fetchall() == [(1,)]
    finally:
        other.rollback()
        await pool.execute("DROP TABLE pool_trial")


async def test_a_transaction_is_kept_or_undone_as_a_whole(pool):
    await pool.execute("CREATE TABLE pool_trial (n int)")
    try:
        async with pool.transaction() as conn:
            await conn.execute("INSERT INTO pool_trial VALUES (1)")
            await conn.execute("INSERT INTO pool_trial VALUES (2)")
        with pytest.raises(ZeroDivisionError):
            await insert_and_fail(pool)
        assert await pool.fetch("SELECT n FROM pool_trial ORDER BY n") == [(1,), (2,)]
    finally:
        await pool.execute("DROP TABLE pool_trial")


async def insert_and_fail(pool):
    async with pool.transaction() as conn:
        await conn.execute("INSERT INTO pool_trial VALUES (3)")
        raise ZeroDivisionError


async def test_broken_sql_stays_a_bug(pool):
    with pytest.raises(psycopg.errors.UndefinedTable):
        await pool.fetch("SELECT 1 FROM no_such_table")
    with pytest.raises(psycopg.errors.UniqueViolation):
        await pool.fetch("DO $$ BEGIN RAISE unique_violation; END $$")


@pytest.mark.alone
async def test_an_exhausted_pool_answers_in_time(dsn):
    pool = PgPool(dsn, max_size=1, wait_s=0.2)
    await pool.open()
    try:
        async with pool.connection():
            started = time.monotonic()
            with pytest.raises(DatabaseUnavailable) as refusal:
                await pool.fetch("SELECT 1")
            assert 0.1 < time.monotonic() - started < 2
            assert not refusal.value.outcome_unknown
        assert await pool.fetch("SELECT 1") == [(1,)]
    finally:
        await pool.close()


@pytest.mark.alone
async def test_waiters_beyond_reason_are_refused_at_once(dsn):
    pool = PgPool(dsn, max_size=1, wait_s=5)
    await pool.open()
    try:
        async with pool.connection():
            waiters = [asyncio.create_task(pool.fetch("SELECT 1")) for _ in range(64)]
            await asyncio.sleep(0)
            started = time.monotonic()
            with pytest.raises(DatabaseUnavailable):
                await asyncio.wait_for(pool.fetch("SELECT 1"), 4)
            assert time.monotonic() - started < 1
        assert await asyncio.gather(*waiters) == [[(1,)]] * 64
    finally:
        await pool.close()


@pytest.mark.alone
async def test_a_server_that_is_not_there_is_unavailable_and_not_a_hang(tmp_path):
    pool = PgPool(make_conninfo(host=str(tmp_path), dbname="nothing"), wait_s=0.3)
    await pool.open()
    try:
        started = time.monotonic()
        with pytest.raises(DatabaseUnavailable) as refusal:
            await pool.fetch("SELECT 1")
        assert time.monotonic() - started < 2
        assert not refusal.value.outcome_unknown
    finally:
        await pool.close()


async def test_a_closed_pool_is_unavailable(dsn):
    pool = PgPool(dsn)
    await pool.open()
    await pool.close()
    await pool.close()
    with pytest.raises(DatabaseUnavailable):
        await pool.fetch("SELECT 1")


@pytest.mark.parametrize(
    ("options", "sqlstate"),
    [("-c lock_timeout=100", "55P03"), ("-c statement_timeout=100", "57014")],
)
async def test_a_timeout_of_the_server_has_a_known_outcome(dsn, other, options, sqlstate):
    pool = PgPool(dsn, session_options=options)
    await pool.open()
    try:
        other.execute("SELECT pg_advisory_xact_lock(4711)")
        with pytest.raises(DatabaseUnavailable) as refusal:
            await pool.execute("SELECT pg_advisory_xact_lock(4711)")
        assert not refusal.value.outcome_unknown
        assert refusal.value.__cause__.sqlstate == sqlstate
        other.rollback()
        assert await pool.fetch("SELECT 1") == [(1,)]
    finally:
        await pool.close()


async def test_a_connection_killed_in_mid_statement_leaves_the_outcome_unknown(pool, other):
    running = asyncio.create_task(pool.execute("SELECT pg_sleep(10)"))
    await until(lambda: killed(other, "active"))
    with pytest.raises(DatabaseUnavailable) as refusal:
        await running
    assert refusal.value.outcome_unknown
    assert await eventually(pool) == [(1,)]


async def test_after_a_restart_of_the_server_one_failure_repairs_the_pool(dsn, other):
    pool = PgPool(dsn, max_size=4, wait_s=5)
    await pool.open()
    try:
        # Long enough for all four to be opened, also on a busy machine.
        await asyncio.gather(*(pool.fetch("SELECT pg_sleep(1)") for _ in range(4)))
        ended = 0

        def all_ended() -> bool:
            nonlocal ended
            ended += killed(other, "idle")
            return ended >= 4

        await until(all_ended)
        with pytest.raises(DatabaseUnavailable):
            await pool.fetch("SELECT 1")
        await asyncio.sleep(0.5)
        answers = await asyncio.gather(*(pool.fetch("SELECT 1") for _ in range(8)))
        assert answers == [[(1,)]] * 8
    finally:
        await pool.close()


async def test_the_pool_of_the_process_is_opened_once_and_closed(dsn):
    with pytest.raises(RuntimeError, match="not open"):
        pg.get_pool()
    opened = await pg.open_pool(dsn)
    try:
        assert pg.get_pool() is opened
        with pytest.raises(RuntimeError, match="already open"):
            await pg.open_pool(dsn)
        assert await pg.get_pool().fetch("SELECT 1") == [(1,)]
    finally:
        await pg.close_pool()
        await pg.close_pool()
    with pytest.raises(RuntimeError, match="not open"):
        pg.get_pool()


def killed(other, state):
    """How many of the pool's sessions in that state were ended."""
    ended = other.execute(BACKENDS, [state]).fetchall()
    other.rollback()  # the view does not change inside a transaction
    return len(ended)


async def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        await asyncio.sleep(0.02)


async def eventually(pool):
    deadline = time.monotonic() + 60
    while True:
        try:
            return await pool.fetch("SELECT 1")
        except DatabaseUnavailable:
            assert time.monotonic() < deadline, "the pool never recovered"
