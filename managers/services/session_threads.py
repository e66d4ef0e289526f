"""Cold work of a socket that uses the ORM, in a thread with a connection of its own.

Not Channels' one thread for everybody: these may wait for a lock or for S3. Few at a time, so that
sockets never take all connections of Django's pool away from HTTP.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from django.db import InterfaceError, OperationalError, connection
from psycopg_pool import PoolTimeout

from core.errors import DatabaseUnavailable

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS: Final = 4  # half of Django's pool

_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `call` with a database connection of its own; raises DatabaseUnavailable."""
    async with _gate():
        return await asyncio.to_thread(_with_own_connection, partial(call, *args, **kwargs))


def _gate() -> asyncio.Semaphore:
    return _gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_THREADS))


def _with_own_connection(call: Callable[[], T]) -> T:
    try:
        return call()
    except (OperationalError, InterfaceError, PoolTimeout) as error:
        raise DatabaseUnavailable(outcome_unknown=True) from error
    finally:
        # Back to the pool: the thread may not be used again for hours.
        connection.close()
