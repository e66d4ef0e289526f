"""The wish to leave, from signals to the loops that must notice it.

First SIGTERM, SIGINT or SIGHUP: take nothing new. Second: leave now. Created by main before
anything that can wait, so that even a worker still looking for its coordinator can be stopped.
"""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

from nodeagent.worker.control import Stopped, StopReason
from nodeagent.worker.interruption import Interrupted, Switch, unless

T = TypeVar("T")

log = structlog.stdlib.get_logger(__name__)


class Departure:
    """Two events: asked to leave, and in a hurry."""

    def __init__(self) -> None:
        self._asked = Switch()
        self._hurried = Switch()

    def listen(self) -> None:
        """Take the signals that ask this process to end."""
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(signum, self._on_signal, signum)

    def _on_signal(self, signum: int) -> None:
        log.info("worker.leaving", signal=signal.Signals(signum).name, again=self.is_asked)
        if self.is_asked:
            self._hurried.set()
        self._asked.set()

    def leave(self) -> None:
        """Take nothing new; what runs may end."""
        self._asked.set()

    def hurry(self) -> None:
        """Leave, with no time for anything."""
        self._asked.set()
        self._hurried.set()

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    async def wait_asked(self) -> None:
        """Until the first request."""
        await self._asked.wait()

    async def sleep(self, seconds: float) -> None:
        """A pause that ends early when asked to leave."""
        await _wait(self._asked, seconds)

    async def sleep_unless_hurried(self, seconds: float) -> None:
        """A pause that ends early at the second request."""
        await _wait(self._hurried, seconds)

    async def unless_asked(self, step: Coroutine[Any, Any, T]) -> T:
        """Run `step`, or cancel it and raise Stopped when asked to leave."""
        try:
            return await unless(self._asked, step)
        except Interrupted as error:
            raise Stopped(StopReason.SHUTDOWN) from error


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
