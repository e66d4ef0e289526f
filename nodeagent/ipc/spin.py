"""Busy waiting that gives itself up where it does not pay.

An answer from the shelf takes some 20 us, going to sleep and being woken 100 and more. But with
more workers than cores a spinning one only keeps its peers from the core, so every miss makes the
next tries rarer. Used by the workers' clients.
"""

import os
import time
from collections.abc import Callable
from typing import Final

_BUDGET_S: Final = 50e-6
_LONGEST_PAUSE: Final = 256  # waits without a spin after many misses in a row


class Spin:
    """Remembers whether spinning was worth it."""

    def __init__(self, budget_s: float = _BUDGET_S) -> None:
        # On a single core the other side cannot move while we spin.
        self._budget_s = budget_s if len(os.sched_getaffinity(0)) > 1 else 0.0
        self._misses = 0
        self._pause = 0

    def until(self, is_there: Callable[[], bool]) -> bool:
        """Whether it came within the budget; does nothing while spinning is given up."""
        if self._budget_s == 0.0:
            return False
        if self._pause:
            self._pause -= 1
            return False
        deadline = time.perf_counter() + self._budget_s
        while not is_there():
            if time.perf_counter() > deadline:
                self._misses += 1
                self._pause = min(1 << self._misses, _LONGEST_PAUSE)
                return False
        self._misses = 0
        return True
