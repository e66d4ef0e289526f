"""How many frames a manager may send: a bucket that refills. Made by websocket.presence."""

import time
from collections.abc import Callable


class Bucket:
    """`per_s` frames a second in the long run, `burst` at once."""

    def __init__(
        self, *, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._level = burst
        self._at = clock()

    def take(self) -> bool:
        """Whether one more frame is within the limit."""
        self._refill()
        if self._level < 1:
            return False
        self._level -= 1
        return True

    def is_full(self) -> bool:
        """Whether nobody could tell it from a new one."""
        self._refill()
        return self._level >= self._burst

    def _refill(self) -> None:
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._at) * self._per_s)
        self._at = now
