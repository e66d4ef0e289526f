"""A scheduler pass ahead of its time, where somebody waits for it and it would change something.

After a submit to a suite that nobody serves, and when a manager becomes idle: work starts at once
instead of at the next sweep. Callers that come together share a pass: each looks again once it has
the scheduler's lock, and finds that nothing is left to do.
"""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

import structlog
from django.db import DatabaseError, connection, transaction
from psycopg_pool import PoolTimeout

from core.locks import advisory_xact_lock
from core.pg import load_sql
from managers.services.announcements import tell_of_pass
from managers.services.scheduler import LOCK, run_pass
from managers.services.session_threads import in_thread
from managers.wakeful import Wakeful

log = structlog.get_logger(__name__)

_UNSERVED: Final = load_sql("managers", "unserved")
GAP_S: Final = 0.25  # a fleet that reconnects costs four looks a second, however large it is
AGAIN_S: Final = 1.0


def serve_suites_on_commit(suite_ids: Collection[int]) -> None:
    """After the submit's commit; nothing that happens here can fail the submit."""
    transaction.on_commit(partial(_serve_suites, list(suite_ids)), robust=True)


def serve(*, suite_ids: Collection[int] = (), manager_ids: Collection[int] = ()) -> bool:
    """Run a pass if it could help one of them; whether it was run."""
    if not _could_help(suite_ids, manager_ids):
        return False
    with advisory_xact_lock(LOCK):
        if not _could_help(suite_ids, manager_ids):
            return False
        tell_of_pass(run_pass())
    return True


class IdleManagers:
    """Managers of one process that just became idle; nobody waits for their pass."""

    def __init__(self) -> None:
        self._ids: set[int] = set()
        self._loop = Wakeful("idle_managers", self._serve, gap_s=GAP_S, again_s=AGAIN_S)

    def note(self, manager_id: int) -> None:
        self._ids.add(manager_id)
        self._loop.wake()

    async def close(self) -> None:
        await self._loop.close()

    async def _serve(self) -> bool:
        ids, self._ids = self._ids, set()
        if ids:
            await in_thread(serve, manager_ids=ids)
        return bool(self._ids)


_idle: WeakKeyDictionary[asyncio.AbstractEventLoop, IdleManagers] = WeakKeyDictionary()


def idle_managers() -> IdleManagers:
    """Those of this process, made by the first use."""
    loop = asyncio.get_running_loop()
    if loop not in _idle:
        _idle[loop] = IdleManagers()
    return _idle[loop]


async def close_idle_managers() -> None:
    found = _idle.pop(asyncio.get_running_loop(), None)
    if found is not None:
        await found.close()


def _serve_suites(suite_ids: list[int]) -> None:
    try:
        serve(suite_ids=suite_ids)
    except (DatabaseError, PoolTimeout) as error:
        # The sweep does it a few seconds later.
        log.warning("scheduler.early_pass_failed", reason=type(error).__name__)


def _could_help(suite_ids: Collection[int], manager_ids: Collection[int]) -> bool:
    parameters = {"suite_ids": list(suite_ids), "manager_ids": list(manager_ids)}
    with connection.cursor() as cursor:
        cursor.execute(_UNSERVED, parameters)
        return bool(cursor.fetchone()[0])
