"""Counts and times of the tasks this agent's workers ran. Fed by the shell with every result.

Pure: the caller brings the clock. Totals only grow; percentiles are of the last 2,048 tasks.
"""

import math
from typing import Literal

import msgspec

from nodeagent.metrics.facts import TaskFacts
from nodeagent.metrics.rolling import Reservoir, RollingCount

_MINUTE_S = 60.0
_HOUR_S = 3600.0
_SHARES = (0.50, 0.95, 0.99)


class TaskMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """One finished attempt; what is unknown stays zero."""

    outcome: Literal["succeeded", "failed", "cancelled"]
    execution_s: float = 0.0
    fetch_s: float = 0.0
    report_s: float = 0.0
    peak_memory_bytes: int = 0
    cpu_s: float = 0.0
    artifacts: int = 0
    artifact_bytes: int = 0


class TaskMeter:
    """The tasks of one agent's life."""

    def __init__(self) -> None:
        self._totals = {"succeeded": 0, "failed": 0, "cancelled": 0}
        self._suite = dict(self._totals)
        self._execution = Reservoir()
        self._fetch = Reservoir()
        self._report = Reservoir()
        self._peaks = Reservoir()
        self._minute = RollingCount(_MINUTE_S)
        self._hour = RollingCount(_HOUR_S)
        self._cpu_s = 0.0
        self._artifacts = 0
        self._artifact_bytes = 0

    def record(self, measure: TaskMeasure, now: float) -> None:
        self._totals[measure.outcome] += 1
        self._suite[measure.outcome] += 1
        self._execution.add(_sane(measure.execution_s))
        self._fetch.add(_sane(measure.fetch_s))
        self._report.add(_sane(measure.report_s))
        self._peaks.add(max(0, measure.peak_memory_bytes))
        self._minute.add(now)
        self._hour.add(now)
        self._cpu_s += _sane(measure.cpu_s)
        self._artifacts += max(0, measure.artifacts)
        self._artifact_bytes += max(0, measure.artifact_bytes)

    def begin_suite(self) -> None:
        """The counts of the suite start again; those of the agent's life do not."""
        self._suite = dict.fromkeys(self._suite, 0)

    def facts(self, now: float) -> TaskFacts:
        p50, p95, p99 = self._execution.percentiles(_SHARES)
        return TaskFacts(
            **self._totals,
            suite_succeeded=self._suite["succeeded"],
            suite_failed=self._suite["failed"],
            suite_cancelled=self._suite["cancelled"],
            last_minute=self._minute.total(now),
            last_hour=self._hour.total(now),
            avg_execution_ms=_ms(self._execution.mean()),
            p50_execution_ms=_ms(p50),
            p95_execution_ms=_ms(p95),
            p99_execution_ms=_ms(p99),
            avg_fetch_ms=_ms(self._fetch.mean()),
            avg_report_ms=_ms(self._report.mean()),
            peak_memory_bytes=int(self._peaks.percentiles((1.0,))[0]),
            cpu_time_ms=int(self._cpu_s * 1000),
            artifacts=self._artifacts,
            artifact_bytes=self._artifact_bytes,
        )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _sane(seconds: float) -> float:
    """JSON has no NaN, and a clock of another process may run a little behind ours."""
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
