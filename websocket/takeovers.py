"""Sessions that took the place of living ones, per runner. Used by websocket.presence.

Two agents with one identity throw each other out without end. One agent on a bad network replaces
its own sessions just as often, before the coordinator has noticed that the old connection is dead;
it says in its hello that it is the process that spoke before, and is not counted.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

WINDOW_S: Final = 60.0


@dataclass(slots=True)
class Takeover:
    """One session in the place of another."""

    at: float
    former: UUID | None  # the process that spoke there, if it had said so
    is_return: bool = False

    def heard(self, process_id: UUID) -> None:
        """Who speaks in the new session."""
        self.is_return = process_id == self.former


class Takeovers:
    """Those of the last minute, as this process sees them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_runner: dict[UUID, deque[Takeover]] = {}

    def note(self, runner_uuid: UUID, former: UUID | None) -> Takeover:
        takeover = Takeover(self._clock(), former)
        self._by_runner.setdefault(runner_uuid, deque()).append(takeover)
        return takeover

    def count(self, runner_uuid: UUID) -> int:
        """How many of them were by somebody else, as far as is known."""
        since = self._clock() - WINDOW_S
        found = self._by_runner.get(runner_uuid, ())
        return sum(not one.is_return and one.at >= since for one in found)

    def forget(self, runner_uuid: UUID) -> None:
        self._by_runner.pop(runner_uuid, None)

    def forget_old(self) -> None:
        since = self._clock() - WINDOW_S
        for runner_uuid, found in list(self._by_runner.items()):
            while found and found[0].at < since:
                found.popleft()
            if not found:
                del self._by_runner[runner_uuid]
