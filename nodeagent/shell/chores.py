"""Background work with an owner: nothing is left running, and no failure goes unseen."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Chores:
    """Tasks that end by themselves or with `close`. A bug in one is told to `on_failure`."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    async def close(self) -> None:
        """Cancel what runs and wait for it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._on_failure(error)
