"""Advisory locks exclude each other across sessions and end with their transaction."""

import pytest
from django.db import OperationalError, connection, transaction

from core.locks import advisory_xact_lock, lock_number, try_advisory_xact_lock, try_lock

HELD = "SELECT pg_try_advisory_xact_lock(%s)"


def is_free(other, key):
    free = other.execute(HELD, [lock_number(key)]).fetchone()[0]
    other.rollback()
    return free


def test_the_lock_is_held_inside_the_block_and_free_after_it(other):
    with advisory_xact_lock("sweep.reap"):
        assert not is_free(other, "sweep.reap")
        assert is_free(other, "sweep.close")
    assert is_free(other, "sweep.reap")


def test_the_lock_is_free_after_a_failure(other):
    with pytest.raises(ZeroDivisionError), advisory_xact_lock("sweep.reap"):
        raise ZeroDivisionError
    assert is_free(other, "sweep.reap")


def test_trying_says_whether_somebody_else_has_it(other):
    other.execute(HELD, [lock_number("sweep.reap")])
    with try_advisory_xact_lock("sweep.reap") as mine:
        assert mine is False
    other.rollback()
    with try_advisory_xact_lock("sweep.reap") as mine:
        assert mine is True
        assert not is_free(other, "sweep.reap")
    assert is_free(other, "sweep.reap")


def test_waiting_ends_with_the_lock_timeout(other):
    other.execute(HELD, [lock_number("sweep.reap")])
    with pytest.raises(OperationalError, match="lock timeout"), transaction.atomic():
        _wait_briefly("sweep.reap")


def _wait_briefly(key):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '100ms'")
    with advisory_xact_lock(key):
        raise AssertionError("two holders of one lock")


def test_inside_a_transaction_the_lock_lasts_until_its_end(other):
    with transaction.atomic():
        with advisory_xact_lock("sweep.reap"):
            pass
        assert not is_free(other, "sweep.reap")
    assert is_free(other, "sweep.reap")


async def test_the_async_form_excludes_the_other_sessions(pool, other):
    async with pool.transaction() as conn:
        assert await try_lock(conn, "sweep.reap")
        assert not is_free(other, "sweep.reap")
        async with pool.transaction() as second:
            assert not await try_lock(second, "sweep.reap")
    assert is_free(other, "sweep.reap")


def test_keys_become_stable_64_bit_numbers():
    assert lock_number("sweep.reap") == lock_number("sweep.reap")
    assert len({lock_number(str(n)) for n in range(1000)}) == 1000
    assert all(-(2**63) <= lock_number(str(n)) < 2**63 for n in range(1000))
