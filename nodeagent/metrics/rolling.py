"""Bounded memory of what happened: recent durations and recent counts. Pure; used by task_meter."""

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

# Sorting this many takes 0.1 ms at a heartbeat, and p99 still rests on twenty values.
RESERVOIR_SIZE: Final = 2048


class Reservoir:
    """The most recent values, for percentiles of now rather than of a whole life."""

    def __init__(self, size: int = RESERVOIR_SIZE) -> None:
        self._values: deque[float] = deque(maxlen=size)

    def add(self, value: float) -> None:
        self._values.append(value)

    def __len__(self) -> int:
        return len(self._values)

    def mean(self) -> float:
        return sum(self._values) / len(self._values) if self._values else 0.0

    def percentiles(self, shares: Sequence[float]) -> list[float]:
        """Nearest rank: each is a value that occurred. Zeros when there is none."""
        if not self._values:
            return [0.0] * len(shares)
        ordered = sorted(self._values)
        return [ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in shares]


class RollingCount:
    """How many in the last `span_s` seconds, to the precision of one slot."""

    def __init__(self, span_s: float, slots: int = 60) -> None:
        self._slot_s = span_s / slots
        self._counts = [0] * slots
        self._newest: int | None = None

    def add(self, now: float, count: int = 1) -> None:
        slot = self._advance(now)
        self._counts[slot % len(self._counts)] += count

    def total(self, now: float) -> int:
        self._advance(now)
        return sum(self._counts)

    def _advance(self, now: float) -> int:
        """Forget the slots that time has passed over; a clock that stands still changes nothing."""
        slot = int(now / self._slot_s)
        if self._newest is None:
            self._newest = slot
        steps = min(max(0, slot - self._newest), len(self._counts))
        for step in range(1, steps + 1):
            self._counts[(slot - steps + step) % len(self._counts)] = 0
        self._newest = max(self._newest, slot)
        return self._newest
