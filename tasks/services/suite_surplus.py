"""The tail rule: no prefetched task waits on one host while another host of its suite idles.

A manager whose fetch was empty is remembered while its suite has tasks at all. Holders of more than
their workers can run are asked to return the surplus, the hungry are told when something waits for
them. Hints only: whoever ignores them loses nothing but time. Called by the manager socket through
tasks.services.manager_claims and manager_reports; the watch ends by itself when nobody is hungry.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec
import structlog
from django.conf import settings

from core.errors import DatabaseUnavailable
from core.locks import try_lock
from core.pg import get_pool
from core.push import push_to_manager
from managers.wakeful import Wakeful
from mitosis_protocol.limits import MAX_REPORTS_PER_FRAME
from mitosis_protocol.to_manager import ReturnSurplus, TasksReady
from tasks.statements import Params, Statement, array

log = structlog.get_logger(__name__)

LOCK: Final = "tasks.tail"
GAP_S: Final = 0.25  # between two looks, however many fetches come back empty


class TailRow(msgspec.Struct, frozen=True):
    """The columns of suite/surplus.sql, in order."""

    kind: str
    runner_id: int
    uuid: UUID
    suite_uuid: UUID
    number: int
    attempt_ids: list[int]


class HungryRow(msgspec.Struct, frozen=True):
    uuid: UUID
    suite_uuid: UUID


SURPLUS: Final = Statement(TailRow, "suite/surplus")
HUNGRY: Final = Statement(HungryRow, "suite/hungry")


class TailWatch:
    """The hungry managers of one process."""

    def __init__(self) -> None:
        policy = settings.MITOSIS
        self._hungry: dict[int, float] = {}  # when its fetch came back empty
        # When a manager was last told to fetch: one that may not have what waits must not spin.
        self._told: dict[int, float] = {}
        self._patience_s = policy.idle_poll_s
        self._loop = Wakeful("tail", self._look, gap_s=GAP_S, again_s=policy.tail_wait_s / 2)

    def came_back_empty(self, runner_id: int) -> None:
        self._hungry[runner_id] = asyncio.get_running_loop().time()
        self._loop.wake()

    def was_fed(self, runner_id: int) -> None:
        self._hungry.pop(runner_id, None)
        self._told.pop(runner_id, None)

    async def close(self) -> None:
        await self._loop.close()

    async def _look(self) -> bool:
        asked_for = dict(self._hungry)
        rows = await _read(asked_for)
        if rows is None:
            return True
        still = {row.runner_id for row in rows if row.kind == "hungry"}
        for runner_id in asked_for.keys() - still:
            # One that asked again meanwhile is looked at again.
            if self._hungry.get(runner_id) == asked_for[runner_id]:
                self.was_fed(runner_id)
        for row in rows:
            await self._tell(row)
        return bool(self._hungry)

    async def _tell(self, row: TailRow) -> None:
        if row.kind == "holder":
            log.info("tail.surplus_asked", manager=str(row.uuid), gives=len(row.attempt_ids))
            message = ReturnSurplus(
                suite_uuid=row.suite_uuid, keep=row.number, task_ids=row.attempt_ids
            )
            await push_to_manager(row.uuid, message)
        elif row.number and self._may_tell(row.runner_id):
            await push_to_manager(row.uuid, TasksReady(suite_uuid=row.suite_uuid, kind="returned"))

    def _may_tell(self, runner_id: int) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._told.get(runner_id, float("-inf")) < self._patience_s:
            return False
        self._told[runner_id] = now
        return True


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, TailWatch] = WeakKeyDictionary()


def tail_watch() -> TailWatch:
    """The watch of this process, made by its first use."""
    loop = asyncio.get_running_loop()
    if loop not in _watches:
        _watches[loop] = TailWatch()
    return _watches[loop]


async def close_tail_watch() -> None:
    watch = _watches.pop(asyncio.get_running_loop(), None)
    if watch is not None:
        await watch.close()


async def tell_returned(runner_id: int, attempt_ids: Sequence[int]) -> None:
    """Tasks are free again: managers of their suites with workers free should fetch now.

    Never raises: the return is written, and who misses the hint asks by itself.
    """
    try:
        found = await HUNGRY.fetch({"runner_id": runner_id, "attempt_ids": array(attempt_ids)})
    except DatabaseUnavailable as error:
        log.warning("tail.hint_lost", reason=error.message)
        return
    for row in found:
        await push_to_manager(row.uuid, TasksReady(suite_uuid=row.suite_uuid, kind="returned"))


async def _read(runner_ids: Collection[int]) -> list[TailRow] | None:
    """None: another process is looking, and may have asked the same holders."""
    async with get_pool().transaction() as conn:
        if not await try_lock(conn, LOCK):
            return None
        params: Params = {"runner_ids": array(sorted(runner_ids)), "most": MAX_REPORTS_PER_FRAME}
        return await SURPLUS.fetch_on(conn, params)
