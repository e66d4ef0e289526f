"""SIGTERM and its like as a wish to leave: first polite, then forced. Used by agent."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog

from nodeagent.worker.interruption import Interrupted, Switch, unless

T = TypeVar("T")

log = structlog.stdlib.get_logger(__name__)

_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class LeftEarly(Exception):
    """Asked to leave before there was anything to leave behind."""


class LeaveSignals:
    """Listens from the first moment on; `tell` says who is told of every wish."""

    def __init__(self) -> None:
        self._asked = Switch()
        self._tell: Callable[[bool], None] = lambda _is_forced: None
        self._count = 0
        loop = asyncio.get_running_loop()
        for signum in _ASKING:
            loop.add_signal_handler(signum, self._on_signal, signum)

    def tell(self, listener: Callable[[bool], None]) -> None:
        """Also of what came before."""
        self._tell = listener
        if self._count:
            listener(self._count > 1)

    async def unless_asked(self, step: Coroutine[Any, Any, T]) -> T:
        """Run `step`; cancels it and raises LeftEarly when a signal comes."""
        try:
            return await unless(self._asked, step)
        except Interrupted as error:
            raise LeftEarly from error

    def _on_signal(self, signum: int) -> None:
        self._count += 1
        is_forced = self._count > 1
        log.info("agent.leaving", signal=signal.Signals(signum).name, is_forced=is_forced)
        self._asked.set()
        self._tell(is_forced)
