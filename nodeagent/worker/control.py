"""How a running task is told to stop, and how its steps notice.

One TaskControl per attempt in hand. The heartbeat loop and the shutdown path call `stop`; the
steps of task_run wrap their waiting in `guard`, and executor turns a stop into signals.
"""

from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, TypeVar

from nodeagent.worker.interruption import Interrupted, Switch, unless

T = TypeVar("T")


class StopReason(Enum):
    """Why a task is stopped. All but CANCELLED mean: say nothing more about this attempt."""

    CANCELLED = "cancelled"  # the user asked; end it and report
    REVOKED = "revoked"  # the coordinator gave it to somebody else
    SHUTDOWN = "shutdown"  # this worker is leaving; unregistering gives the task back
    REMOVED = "removed"  # the coordinator forgot this worker

    @property
    def is_urgent(self) -> bool:
        """Whether the command is killed at once instead of asked."""
        return self in (StopReason.SHUTDOWN, StopReason.REMOVED)


class Stopped(Exception):
    """Raised by `guard` in the step that was interrupted."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class TaskControl:
    """The stop switch of one attempt."""

    def __init__(self, attempt_id: int) -> None:
        self.attempt_id = attempt_id
        self.reason: StopReason | None = None
        self._stopped = Switch()
        self._dropped = Switch()
        self._urgent = Switch()

    def stop(self, reason: StopReason) -> None:
        """Idempotent; a later reason only replaces a weaker one (cancel < revoke < leave)."""
        if self.reason is not None and _STRENGTH[reason] <= _STRENGTH[self.reason]:
            return
        self.reason = reason
        self._stopped.set()
        if reason is not StopReason.CANCELLED:
            self._dropped.set()
        if reason.is_urgent:
            self._urgent.set()

    @property
    def is_dropped(self) -> bool:
        """Whether nothing more may be reported about this attempt."""
        return self._dropped.is_set()

    def check(self) -> None:
        """Raise Stopped if a stop was asked for."""
        if self.reason is not None:
            raise Stopped(self.reason)

    async def wait_stopped(self) -> None:
        """Until any stop."""
        await self._stopped.wait()

    def watch_stopped(self, watcher: Callable[[], object]) -> None:
        """Call back at any stop; at once if there was one."""
        self._stopped.watch(watcher)

    def unwatch_stopped(self, watcher: Callable[[], object]) -> None:
        self._stopped.unwatch(watcher)

    async def wait_urgent(self) -> None:
        """Until a stop that leaves no time for manners."""
        await self._urgent.wait()

    async def guard(self, step: Coroutine[Any, Any, T], *, only_if_dropped: bool = False) -> T:
        """Run `step`; on a stop cancel it and raise Stopped. A finished step wins a tie.

        With `only_if_dropped` a mere cancellation lets it go on: results are being reported.
        """
        try:
            return await unless(self._dropped if only_if_dropped else self._stopped, step)
        except Interrupted as error:
            raise Stopped(self.reason or StopReason.SHUTDOWN) from error


_STRENGTH = {
    StopReason.CANCELLED: 0,
    StopReason.REVOKED: 1,
    StopReason.SHUTDOWN: 2,
    StopReason.REMOVED: 2,
}
