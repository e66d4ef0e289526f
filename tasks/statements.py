"""One SQL text, two ways to run it: the async pool, or Django's connection for synchronous code.

A statement is the concatenation of files in tasks/sql. Its parameters are named in the text; every
value travels as text with a cast beside it, so the server keeps one prepared plan per statement
whatever the size of the numbers. Used by tasks.store only.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import cache
from typing import Any, Final, Generic, LiteralString, TypeAlias, TypeVar
from weakref import WeakSet

import msgspec
import psycopg
from django.db import OperationalError, connection
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from core.errors import DatabaseUnavailable
from core.pg import get_pool, load_sql, owns_session

Row = TypeVar("Row", bound=msgspec.Struct)
Scalar: TypeAlias = int | float | str | bool | None
Params: TypeAlias = Mapping[str, Scalar | list[str | None]]
Values: TypeAlias = list[str | list[str | None] | None]

_TUNING: Final[LiteralString] = (
    "SET enable_seqscan = off; SET jit = off; SET plan_cache_mode = force_generic_plan"
)
_TUNING_LOCAL: Final[LiteralString] = (
    "SET LOCAL enable_seqscan = off; SET LOCAL jit = off; "
    "SET LOCAL plan_cache_mode = force_generic_plan"
)
_NAMED: Final = re.compile(r"%\(([a-z_]+)\)s")
_tuned: Final[WeakSet[AsyncConnection[TupleRow]]] = WeakSet()


@cache
def compose(parts: tuple[str, ...]) -> LiteralString:
    """The text of a statement, with named parameters as psycopg and Django write them."""
    return "".join(load_sql("tasks", part) for part in parts)


@cache
def _numbered(parts: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The same text with the server's own $1, $2 and the order of names.

    psycopg translates named parameters anew on every call for texts beyond 4 KiB; ours are longer.
    """
    names: dict[str, int] = {}
    text = _NAMED.sub(
        lambda found: f"${names.setdefault(found[1], len(names) + 1)}", compose(parts)
    )
    return text.replace("%%", "%"), tuple(names)


def forget_texts() -> None:
    """Read the files anew; for tests that change what `load_sql` answers."""
    compose.cache_clear()
    _numbered.cache_clear()


class Statement(Generic[Row]):
    """A statement and the frozen struct each of its rows becomes, column by column in order."""

    def __init__(self, row: type[Row], *parts: str) -> None:
        self.row = row
        self.parts = parts

    async def fetch(self, params: Params) -> list[Row]:
        """Run it as one transaction on the pool. Raises DatabaseUnavailable."""
        async with get_pool().connection() as conn:
            return await self.fetch_on(conn, params)

    async def fetch_on(self, conn: AsyncConnection[TupleRow], params: Params) -> list[Row]:
        """Run it on a connection of the pool, for callers inside a transaction."""
        text, names = _numbered(self.parts)
        values = [_plain(params[name]) for name in names]
        if not owns_session(conn):
            return await self._fetch_borrowed(conn, text, values)
        if conn not in _tuned:
            await _tune(conn)
        return await self._run(conn, text, values)

    async def _fetch_borrowed(
        self, conn: AsyncConnection[TupleRow], text: str, values: Values
    ) -> list[Row]:
        """Behind a pooler the settings last as long as the transaction, so it gets one."""
        is_inside = conn.info.transaction_status is not TransactionStatus.IDLE
        async with nullcontext() if is_inside else conn.transaction():
            await conn.execute(_TUNING_LOCAL)
            return await self._run(conn, text, values)

    async def _run(self, conn: AsyncConnection[TupleRow], text: str, values: Values) -> list[Row]:
        async with AsyncRawCursor(conn) as cursor:
            await cursor.execute(text, values, prepare=True)
            return [self.row(*found) for found in await cursor.fetchall()]

    def fetch_sync(self, params: Params) -> list[Row]:
        """Run it on Django's connection, inside the transaction that is open there, if any."""
        named = {name: _plain(value) for name, value in params.items()}
        try:
            with connection.cursor() as cursor:
                cursor.execute(compose(self.parts), named)
                return [self.row(*found) for found in cursor.fetchall()]
        except OperationalError as error:
            raise as_unavailable(error) from error


async def _tune(conn: AsyncConnection[TupleRow]) -> None:
    """Once per connection: settings that prepared statements are planned under.

    A plan made while the queue is empty is kept when 100,000 tasks arrive; without the first
    setting it would read the table for every claim. The second: our statements look expensive to
    the planner, and compiling one takes longer than running it. The third: they are written to
    have one plan whatever the values are, and planning a claim again took as long as running it.
    """
    is_outside = conn.info.transaction_status is TransactionStatus.IDLE
    await conn.execute(_TUNING)
    if is_outside:  # inside, a rollback would undo it
        _tuned.add(conn)


def as_unavailable(error: OperationalError) -> DatabaseUnavailable:
    """What Django's wrapper of a psycopg error means for our callers."""
    cause = error.__cause__
    known = isinstance(cause, psycopg.Error) and cause.sqlstate is not None
    return DatabaseUnavailable(outcome_unknown=not known)


def array(values: Iterable[Any]) -> str:
    """An array literal of numbers, booleans or uuids: nothing in it ever needs quoting."""
    return "{" + ",".join("NULL" if value is None else str(value) for value in values) + "}"


def _plain(value: Scalar | list[str | None]) -> str | list[str | None] | None:
    return value if value is None or isinstance(value, list) else str(value)
