"""PostgreSQL advisory locks, always bound to a transaction.

Session locks would leak through a pooler in transaction mode, so there are none here. Keys are
texts ("sweep.reap"); both forms of the same key exclude each other across all processes.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, LiteralString

from django.db import connection, transaction
from psycopg import AsyncConnection

_WAIT: Final[LiteralString] = "SELECT pg_advisory_xact_lock(%s)"
_TRY: Final[LiteralString] = "SELECT pg_try_advisory_xact_lock(%s)"


@contextmanager
def advisory_xact_lock(key: str) -> Iterator[None]:
    """Run the block in a transaction that holds `key`, waiting for it up to lock_timeout.

    Inside an outer transaction the lock lasts until that one ends.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_WAIT, [lock_number(key)])
        yield


@contextmanager
def try_advisory_xact_lock(key: str) -> Iterator[bool]:
    """As above without waiting: the block gets False when somebody else holds `key`."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_TRY, [lock_number(key)])
        yield bool(cursor.fetchone()[0])


async def try_lock(conn: AsyncConnection[tuple[object, ...]], key: str) -> bool:
    """Take `key` for the transaction `conn` is in (`PgPool.transaction()`), without waiting."""
    cursor = await conn.execute(_TRY, [lock_number(key)])
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


def lock_number(key: str) -> int:
    """The bigint behind a key; the prefix keeps our numbers apart from other software's."""
    digest = hashlib.blake2b(f"mitosis:{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
