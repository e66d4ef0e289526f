"""The end of a campaign ahead of the sweeps: its last task ended, so the suite is complete, and its
hosts are let go at once instead of up to two periods later.

Told of every task that ended in this process; a closed suite without tasks is then found by one
short statement, at most four a second. A suite that is closed after its last task ended is looked
at by whoever closes it. What is missed (the last task ended elsewhere, or the suite was locked) is
found by the sweeps.
"""

import asyncio
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

import structlog
from django.db import DatabaseError, transaction
from psycopg_pool import PoolTimeout

from core.locks import advisory_xact_lock
from core.pg import get_pool, load_sql
from managers.services.announcements import tell_of_pass
from managers.services.scheduler import LOCK, run_pass
from managers.services.session_threads import in_thread
from managers.wakeful import Wakeful
from suites.services.sweeps import complete_emptied

log = structlog.get_logger(__name__)

_EMPTIED: Final = load_sql("suites", "find/emptied")
GAP_S: Final = 0.25  # between two looks, however many tasks end meanwhile
AGAIN_S: Final = 1.0


def end_emptied(suite_ids: Collection[int]) -> list[int]:
    """Complete those that are done and let their hosts go; answers them."""
    ended = complete_emptied(suite_ids)
    # The first pass finds the hosts idle, the second lets those go that need not linger.
    for _ in range(2 if ended else 0):
        with advisory_xact_lock(LOCK):
            tell_of_pass(run_pass())
    return ended


def end_emptied_on_commit(suite_ids: Collection[int]) -> None:
    """After the commit of what closed them; nothing that happens here can fail it."""
    transaction.on_commit(partial(_end_emptied, list(suite_ids)), robust=True)


def _end_emptied(suite_ids: list[int]) -> None:
    try:
        end_emptied(suite_ids)
    except (DatabaseError, PoolTimeout) as error:
        # The sweeps do it a few seconds later.
        log.warning("suites.early_end_failed", reason=type(error).__name__)


class EmptiedSuites:
    """Suites in which this process saw tasks end since it last looked."""

    def __init__(self) -> None:
        self._ids: set[int] = set()
        self._loop = Wakeful("emptied_suites", self._look, gap_s=GAP_S, again_s=AGAIN_S)

    def note(self, suite_ids: Iterable[int]) -> None:
        self._ids.update(suite_ids)
        if self._ids:
            self._loop.wake()

    async def close(self) -> None:
        await self._loop.close()

    async def _look(self) -> bool:
        ids, self._ids = self._ids, set()
        found = await get_pool().fetch(_EMPTIED, {"suite_ids": sorted(ids)})
        if found:
            await in_thread(end_emptied, [suite_id for (suite_id,) in found])
        return False


_emptied: WeakKeyDictionary[asyncio.AbstractEventLoop, EmptiedSuites] = WeakKeyDictionary()


def emptied_suites() -> EmptiedSuites:
    """Those of this process, made by the first use."""
    loop = asyncio.get_running_loop()
    if loop not in _emptied:
        _emptied[loop] = EmptiedSuites()
    return _emptied[loop]


async def close_emptied_suites() -> None:
    found = _emptied.pop(asyncio.get_running_loop(), None)
    if found is not None:
        await found.close()
