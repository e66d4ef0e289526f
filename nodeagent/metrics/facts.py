"""The values that MetricsCollector turns into families; made by the shell and the meters. Pure."""

from collections.abc import Sequence
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

WorkerState: TypeAlias = Literal["idle", "executing", "crashed"]
SuitePhase: TypeAlias = Literal["idle", "preparing", "executing", "cleaning"]
SuiteOutcome: TypeAlias = Literal["none", "running", "success", "prep_failed", "cleanup_degraded"]


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One worker slot."""

    local_id: int
    state: WorkerState = "idle"
    attempt_id: int | None = None
    tasks_completed: int = 0
    uptime_s: float = 0.0


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The pool; `spawned` and `crashed` count over the agent's life."""

    spawned: int = 0
    crashed: int = 0
    workers: Sequence[WorkerFacts] = ()
    cores: Sequence[int] = ()  # bound to workers


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What TaskMeter knows. Totals count over the agent's life."""

    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    suite_succeeded: int = 0
    suite_failed: int = 0
    suite_cancelled: int = 0
    last_minute: int = 0
    last_hour: int = 0
    avg_execution_ms: float = 0.0
    p50_execution_ms: float = 0.0
    p95_execution_ms: float = 0.0
    p99_execution_ms: float = 0.0
    avg_fetch_ms: float = 0.0
    avg_report_ms: float = 0.0
    peak_memory_bytes: int = 0
    cpu_time_ms: int = 0
    artifacts: int = 0
    artifact_bytes: int = 0

    @property
    def completed(self) -> int:
        return self.succeeded + self.failed + self.cancelled

    @property
    def suite_completed(self) -> int:
        return self.suite_succeeded + self.suite_failed + self.suite_cancelled


class SuiteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What SuiteMeter knows about the present engagement, or the last one."""

    suite_uuid: UUID | None = None
    phase: SuitePhase = "idle"
    outcome: SuiteOutcome = "none"
    prep_ms: int = 0
    prep_retries: int = 0
    execution_ms: int = 0
    cleanup_ms: int = 0
    cleanup_retries: int = 0
    switches: int = 0  # suites begun over the agent's life
    idle_s: float = 0.0  # since the last one ended; 0 while engaged


class LeaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The engagement and the lease under it; times are durations, the agent's clock is its own."""

    assignment_id: int | None = None
    suite_uuid: UUID | None = None
    age_s: float = 0.0
    remaining_s: float = 0.0
    renewals: int = 0
    early_breaks: int = 0
