"""The async PostgreSQL pool and the loader of named SQL, for the hot path.

Opened and closed by the ASGI lifespan (or a test); used by `tasks.store`, heartbeats and sweeps.
Every connection is in autocommit: one statement is one transaction unless `transaction()` is used.
Trouble with the database becomes DatabaseUnavailable; broken SQL stays a bug.
"""

import asyncio
import importlib.resources
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final, LiteralString, TypeAlias, TypeVar, overload

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import AsyncRowFactory, RowFactory, TupleRow, tuple_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from core.errors import DatabaseUnavailable

log = structlog.get_logger(__name__)

Params: TypeAlias = Sequence[object] | Mapping[str, object] | None
Row = TypeVar("Row")

# lock_timeout: a row held longer is a stuck peer, not a queue. statement_timeout: longer than any
# statement of ours under load. The third lets go of what a process that died in a transaction held.
SESSION_OPTIONS: Final = (
    "-c lock_timeout=2000 -c statement_timeout=15000 -c idle_in_transaction_session_timeout=30000"
)
POOL_WAIT_S: Final = 2.5  # below the 5 s after which existing clients give up reading
CONNECT_TIMEOUT_S: Final = 5
POOL_MAX_SIZE: Final = 8  # per process; statements are batched, so few connections go far

_SQL_NAME: Final = re.compile(r"[a-z0-9_]+(?:/[a-z0-9_]+)*")


@cache
def load_sql(package: str, name: str) -> LiteralString:
    """The text of `<package>/sql/<name>.sql`; raises LookupError for a name that has no file."""
    if _SQL_NAME.fullmatch(name) is None:
        raise LookupError(f"{name!r} is not the name of an SQL file")
    file = importlib.resources.files(package).joinpath("sql", *f"{name}.sql".split("/"))
    if not file.is_file():
        raise LookupError(f"{package} has no sql/{name}.sql")
    # The text ships with the package: it is as literal as a string in the source.
    return file.read_text(encoding="utf-8")


class PgPool:
    """A bounded set of autocommit connections with the house timeouts.

    Without `owns_sessions` a pooler in transaction mode stands between: it has set the timeouts,
    and nothing may be left in a session.
    """

    def __init__(
        self,
        dsn: str,
        *,
        max_size: int = POOL_MAX_SIZE,
        wait_s: float = POOL_WAIT_S,
        session_options: str = SESSION_OPTIONS,
        owns_sessions: bool = True,
    ) -> None:
        self._pool = AsyncConnectionPool(
            _with_session_options(dsn, session_options),
            connection_class=AsyncConnection[TupleRow],
            # Behind a pooler the next statement may run in a session that prepared nothing.
            kwargs={"autocommit": True}
            if owns_sessions
            else {"autocommit": True, "prepare_threshold": None},
            min_size=1,
            max_size=max_size,
            timeout=wait_s,
            # Beyond this many waiters the next one would time out anyway: refuse it at once.
            max_waiting=max_size * 64,
            open=False,
        )
        self._repair: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start connecting and return at once: a coordinator may start before its database."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Close every connection; safe to call twice."""
        if self._repair is not None:
            self._repair.cancel()
            await asyncio.gather(self._repair, return_exceptions=True)
            self._repair = None
        await self._pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[TupleRow]]:
        """A connection in autocommit. Raises DatabaseUnavailable, also for what the block meets."""
        try:
            async with self._pool.connection() as conn:
                try:
                    yield conn
                except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                    raise self._unavailable(conn, error) from error
        except (PoolTimeout, PoolClosed, TooManyRequests) as error:
            log.warning("database.pool_exhausted", reason=str(error))
            raise DatabaseUnavailable from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[TupleRow]]:
        """A connection inside one transaction: committed at the end, rolled back on error."""
        async with self.connection() as conn, conn.transaction():
            yield conn

    @overload
    async def fetch(self, sql: LiteralString, params: Params = None) -> list[TupleRow]: ...
    @overload
    async def fetch(
        self, sql: LiteralString, params: Params = None, *, row: RowFactory[Row]
    ) -> list[Row]: ...
    async def fetch(
        self,
        sql: LiteralString,
        params: Params = None,
        *,
        row: RowFactory[Any] | AsyncRowFactory[Any] = tuple_row,
    ) -> list[Any]:
        """All rows of one statement, which is one transaction."""
        async with self.connection() as conn, conn.cursor(row_factory=row) as cursor:
            await cursor.execute(sql, params)
            return await cursor.fetchall()

    async def execute(self, sql: LiteralString, params: Params = None) -> int:
        """Run one statement and return how many rows it touched."""
        async with self.connection() as conn:
            cursor = await conn.execute(sql, params)
            return cursor.rowcount

    def _unavailable(
        self, conn: AsyncConnection[TupleRow], error: psycopg.Error
    ) -> DatabaseUnavailable:
        # A server that answered has rolled back; only a lost connection leaves us in the dark.
        lost = error.sqlstate is None or conn.broken
        if lost:
            self._replace_broken_connections()
        log.warning("database.statement_failed", sqlstate=error.sqlstate, connection_lost=lost)
        return DatabaseUnavailable(outcome_unknown=lost)

    def _replace_broken_connections(self) -> None:
        """After a restart of the server every idle connection is dead; do not fail once on each."""
        if self._repair is None or self._repair.done():
            self._repair = asyncio.create_task(self._pool.check())


_pool: PgPool | None = None


async def open_pool(
    dsn: str,
    *,
    max_size: int = POOL_MAX_SIZE,
    wait_s: float = POOL_WAIT_S,
    session_options: str = SESSION_OPTIONS,
    owns_sessions: bool = True,
) -> PgPool:
    """Open the pool of this process; called by the ASGI lifespan."""
    global _pool  # noqa: PLW0603 - one pool per process, owned by the lifespan
    if _pool is not None:
        raise RuntimeError("the pool of this process is already open")
    pool = PgPool(
        dsn,
        max_size=max_size,
        wait_s=wait_s,
        session_options=session_options,
        owns_sessions=owns_sessions,
    )
    await pool.open()
    _pool = pool
    return pool


async def close_pool() -> None:
    """Close the pool of this process; nothing happens if it was never opened."""
    global _pool
    pool, _pool = _pool, None
    if pool is not None:
        await pool.close()


def get_pool() -> PgPool:
    """The pool of this process; a RuntimeError means that no lifespan has opened it."""
    if _pool is None:
        raise RuntimeError("the pool is not open: core.pg.open_pool() has not run")
    return _pool


def owns_session(conn: AsyncConnection[TupleRow]) -> bool:
    """Whether what is set on a connection of the pool is still there at the next statement."""
    return conn.prepare_threshold is not None


def _with_session_options(dsn: str, ours: str) -> str:
    given = str(conninfo_to_dict(dsn).get("options") or "")
    # The operator's own options come last and win.
    return make_conninfo(
        dsn,
        options=f"{ours} {given}".strip() or None,
        application_name="mitosis-pool",
        connect_timeout=CONNECT_TIMEOUT_S,
    )
