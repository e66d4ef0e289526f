"""The life cycle of the engagement in figures: how long each phase took and how it ended.

Pure: the shell tells it what happens and brings the clock. Read by collect through `facts`.
"""

from typing import Final
from uuid import UUID

from nodeagent.metrics.facts import SuiteFacts, SuiteOutcome, SuitePhase

_PHASES: Final[tuple[SuitePhase, ...]] = ("preparing", "executing", "cleaning")


class SuiteMeter:
    """One engagement after the other."""

    def __init__(self, now: float) -> None:
        self._suite_uuid: UUID | None = None
        self._phase: SuitePhase = "idle"
        self._since = now
        self._spent_s: dict[SuitePhase, float] = dict.fromkeys(_PHASES, 0.0)
        self._retries: dict[SuitePhase, int] = dict.fromkeys(_PHASES, 0)
        self._outcome: SuiteOutcome = "none"
        self._switches = 0

    def begin(self, suite_uuid: UUID, now: float) -> None:
        """A suite was assigned; preparation starts."""
        if suite_uuid != self._suite_uuid:
            self._switches += 1
        self._suite_uuid = suite_uuid
        self._spent_s = dict.fromkeys(_PHASES, 0.0)
        self._retries = dict.fromkeys(_PHASES, 0)
        self._outcome = "running"
        self._phase, self._since = "preparing", now

    def enter(self, phase: SuitePhase, now: float) -> None:
        """The next phase; `idle` ends the engagement."""
        if self._phase in self._spent_s:
            self._spent_s[self._phase] += max(0.0, now - self._since)
        self._phase, self._since = phase, now
        if phase == "idle" and self._outcome == "running":
            self._outcome = "success"

    def hook_ended(self, *, is_preparation: bool, is_ok: bool, tries: int) -> None:
        self._retries["preparing" if is_preparation else "cleaning"] += max(0, tries - 1)
        if not is_ok and self._outcome == "running":
            self._outcome = "prep_failed" if is_preparation else "cleanup_degraded"

    def facts(self, now: float) -> SuiteFacts:
        running_s = max(0.0, now - self._since)
        spent_ms = {
            phase: int((self._spent_s[phase] + (running_s if phase == self._phase else 0.0)) * 1000)
            for phase in _PHASES
        }
        return SuiteFacts(
            suite_uuid=self._suite_uuid,
            phase=self._phase,
            outcome=self._outcome,
            prep_ms=spent_ms["preparing"],
            prep_retries=self._retries["preparing"],
            execution_ms=spent_ms["executing"],
            cleanup_ms=spent_ms["cleaning"],
            cleanup_retries=self._retries["cleaning"],
            switches=self._switches,
            idle_s=round(running_s, 1) if self._phase == "idle" else 0.0,
        )
