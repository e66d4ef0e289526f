"""Telling in which stage the attempt in hand is, once it has been there for a while.

A stage that lasts less than half a second is over before anybody could look at it, so most tasks
say nothing; one timer per half second of work, whatever the number of tasks. Used by ipc_comm.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from mitosis_protocol.enums import TaskExecState
from nodeagent.errors import AgentError

log = structlog.stdlib.get_logger(__name__)

_TELLING_S: Final = 0.5


class Stages:
    """The stage of one worker's attempt. Made on a running loop."""

    def __init__(self, tell: Callable[[int, TaskExecState], Coroutine[Any, Any, None]]) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._now: tuple[int, TaskExecState] | None = None
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._telling: asyncio.Task[None] | None = None
        self._told: tuple[int, TaskExecState] | None = None

    def enter(self, attempt_id: int, state: TaskExecState) -> None:
        self._now = (attempt_id, state)
        self._since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(_TELLING_S, self._look)

    def leave(self) -> None:
        self._now = None

    def stop(self) -> None:
        self.leave()
        for pending in (self._timer, self._telling):
            if pending is not None:
                pending.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._now is None or self._now == self._told:
            return
        rest_s = self._since + _TELLING_S - self._loop.time()
        if rest_s > 0:
            self._timer = self._loop.call_later(rest_s, self._look)
        elif self._telling is None or self._telling.done():
            self._told = self._now
            self._telling = self._loop.create_task(self._say(*self._now))

    async def _say(self, attempt_id: int, state: TaskExecState) -> None:
        try:
            await self._tell(attempt_id, state)
        except AgentError as error:
            log.debug("stage.not_told", error=str(error))
