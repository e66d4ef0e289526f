"""Busy waiting that gives itself up where it does not pay.

Going to sleep and being woken takes 50 us and more, which a worker spares that still looks when the
answer comes. It looks for twice as long as answers have taken of late, and only while the agent
says that there are cores to spare (crowd). Between two looks it gives way: the kernel likes to wake
the agent on the very core that asked, where it would wait for the end of the spinning. Every miss
makes the next tries rarer, so that one who waits for work, or for the disk, soon sleeps at once.
Used by the workers' clients.
"""

import os
import time
from collections.abc import Callable
from typing import Final

# Beyond this the core is worth more than the wake-up.
_LONGEST_S: Final = 250e-6
_LONGEST_PAUSE: Final = 256  # waits without a spin after many misses in a row
_WEIGHT: Final = 0.125  # of the newest answer in what they take


class Spin:
    """Remembers whether spinning was worth it, and for how long."""

    def __init__(
        self,
        has_room: Callable[[], bool],
        clock: Callable[[], float] = time.perf_counter,
        give_way: Callable[[], object] = os.sched_yield,
    ) -> None:
        self._has_room = has_room
        self._clock = clock
        self._give_way = give_way
        self._usual_s = _LONGEST_S
        self._misses = 0
        self._pause = 0

    def until(self, is_there: Callable[[], bool]) -> bool:
        """Whether it came in time; does nothing while spinning is given up."""
        if self._pause:
            self._pause -= 1
            return False
        if not self._has_room():
            return False
        began = self._clock()
        deadline = began + min(2 * self._usual_s, _LONGEST_S)
        while not is_there():
            if self._clock() > deadline:
                self._misses += 1
                self._pause = min(1 << self._misses, _LONGEST_PAUSE)
                # What was usual may have changed: the next try is a long one again.
                self._usual_s = _LONGEST_S
                return False
            self._give_way()
        self._misses = 0
        self._usual_s += _WEIGHT * (self._clock() - began - self._usual_s)
        return True
