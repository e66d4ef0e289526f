"""Racing a piece of work against a switch. The one primitive under every stop of the worker."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from typing_extensions import override

T = TypeVar("T")


class Interrupted(Exception):
    """The switch came first; the work was cancelled and has ended."""


class Switch(asyncio.Event):
    """An event that also calls back, so that watching it needs no task of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._watchers: list[Callable[[], object]] = []

    @override
    def set(self) -> None:
        super().set()
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()

    def watch(self, watcher: Callable[[], object]) -> None:
        """Call `watcher` once when it is set; at once if it is."""
        if self.is_set():
            watcher()
        else:
            self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], object]) -> None:
        """Also for one that was called already."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)


async def unless(switch: Switch, step: Coroutine[Any, Any, T]) -> T:
    """Run `step`; if `switch` is set first, cancel it, wait for its end and raise Interrupted.

    Work that is finished wins a tie: what it did is done. It runs within the calling task, as
    under `asyncio.timeout`: two tasks more for every step would cost 50 us each time.
    """
    cut = _Cut()
    switch.watch(cut.schedule)
    try:
        return await step
    except asyncio.CancelledError:
        if cut.was_last_reason():
            raise Interrupted from None
        raise
    finally:
        switch.unwatch(cut.schedule)
        cut.revoke()


class _Cut:
    """The one cancellation that `unless` may cause; nothing of it is left afterwards."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = task.cancelling()
        self._handle: asyncio.Handle | None = None
        self._is_done = False

    def schedule(self) -> None:
        # Not at once: the step itself may have set the switch, and a cancellation of the running
        # task would hit whatever it waits for next, long after the step.
        self._handle = asyncio.get_running_loop().call_soon(self._cancel)

    def was_last_reason(self) -> bool:
        """Whether nobody else wants the task cancelled."""
        return self._is_done and self._task.cancelling() - 1 <= self._before

    def revoke(self) -> None:
        if self._is_done:
            self._task.uncancel()
        elif self._handle is not None:
            self._handle.cancel()

    def _cancel(self) -> None:
        self._is_done = True
        self._task.cancel()
