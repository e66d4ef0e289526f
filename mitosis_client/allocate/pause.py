"""When not to submit: after refusals and after jobs that died young. Doubles, and ends by itself.

A failure is forgotten when a job that came after it lived long enough; jobs that ran before prove
nothing about the next one.
"""

from collections.abc import Collection


class Pause:
    """The back-off of one allocation."""

    def __init__(self, first_s: float, max_s: float) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._failures = 0
        self._until = 0.0
        self._older: frozenset[str] = frozenset()
        self.reason = ""

    def begin(self, reason: str, now: float, running: Collection[str]) -> float:
        """Another failure; how long it lasts. `running` are the jobs that prove nothing."""
        seconds = min(self._max_s, self._first_s * 2.0**self._failures)
        self._failures = min(self._failures + 1, 32)
        self._until = now + seconds
        self._older = frozenset(running)
        self.reason = reason
        return seconds

    def left_s(self, now: float) -> float:
        return max(0.0, self._until - now)

    def proven(self, grown: Collection[str]) -> None:
        """These jobs are no longer young; one that came after the failure ends the back-off."""
        if self._failures and any(job not in self._older for job in grown):
            self._failures = 0
            self._until = 0.0
            self.reason = ""
