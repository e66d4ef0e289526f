"""A background loop of one process that runs while there is a reason to, and never twice at once.

For work that events ask for and that nobody waits for: looks after hungry hosts, early scheduler
passes. Whoever owns one closes it before the database pool.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from core.errors import DatabaseUnavailable

log = structlog.get_logger(__name__)


class Wakeful:
    """Runs `work` soon after `wake`, at most every `gap_s`; again after `again_s` while it says so.

    However often it is woken meanwhile, that is one more run.
    """

    def __init__(
        self, name: str, work: Callable[[], Awaitable[bool]], *, gap_s: float, again_s: float
    ) -> None:
        self._name = name
        self._work = work
        self._gap_s = gap_s
        self._again_s = again_s
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._working = asyncio.Lock()
        self._is_closed = False

    def wake(self) -> None:
        """Never waits."""
        self._woken.set()
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """End it, after the work that is under way: a thread cannot be cancelled."""
        self._is_closed = True
        if self._task is not None:
            async with self._working:
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            has_more = await self._try()
            await asyncio.sleep(self._gap_s)
            if not has_more and not self._woken.is_set():
                return
            if not self._woken.is_set():
                await self._rest()

    async def _try(self) -> bool:
        try:
            async with self._working:
                return await self._work()
        except DatabaseUnavailable as error:
            log.warning("wakeful.failed", name=self._name, reason=error.message)
            return True

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._again_s):
                await self._woken.wait()
        except TimeoutError:
            return

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: said once with its trace; the next wake tries again.
            log.error("wakeful.crashed", name=self._name, exc_info=error)
