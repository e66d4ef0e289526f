"""The six families of metrics in one heartbeat: system, worker pool, tasks, suite, IPC, lease.

Called by the agent's shell at every heartbeat with the facts of its parts. Families are flat; the
numbers the RFC names go beside them.
"""

from pathlib import Path
from typing import Final

from mitosis_protocol.from_manager import ManagerMetrics
from mitosis_protocol.limits import MIB
from mitosis_protocol.manager_reports import Facts
from nodeagent.ipc.server import IpcStats
from nodeagent.metrics.facts import LeaseFacts, PoolFacts, SuiteFacts, TaskFacts, WorkerFacts
from nodeagent.metrics.system import SystemSampler

# A line per worker; 256 members fit a family, and beyond this the totals have to do.
MAX_WORKERS_SHOWN: Final = 128
_HOUR_S: Final = 3600.0


class MetricsCollector:
    """Keeps what rates need from one sample to the next."""

    def __init__(
        self, data_dir: Path, *, started: float, system: SystemSampler | None = None
    ) -> None:
        self._started = started
        self._system = system or SystemSampler(data_dir)
        self._last_at: float | None = None
        self._last_ipc = IpcStats()
        self._last_crashed = 0

    def sample(
        self,
        now: float,
        pool: PoolFacts,
        tasks: TaskFacts,
        ipc: IpcStats,
        lease: LeaseFacts,
        suite: SuiteFacts | None = None,
    ) -> ManagerMetrics:
        """`now` is the monotonic clock, as `started` was."""
        about_suite = suite or SuiteFacts()
        seconds = 0.0 if self._last_at is None else now - self._last_at
        system = self._system.sample(now, pool.cores)
        families: dict[str, Facts] = {
            "system": system,
            "worker_pool": _pool_family(pool, self._last_crashed, seconds),
            "tasks": _task_family(tasks),
            "suite": _suite_family(about_suite, tasks),
            "ipc": _ipc_family(ipc, self._last_ipc, seconds),
            "lease": _lease_family(lease, about_suite),
        }
        self._last_at, self._last_ipc, self._last_crashed = now, ipc, pool.crashed
        return ManagerMetrics(
            active_workers=_active(pool),
            total_tasks_completed=tasks.completed,
            total_tasks_failed=tasks.failed,
            current_suite_tasks_completed=tasks.suite_completed,
            current_suite_tasks_failed=tasks.suite_failed,
            uptime_seconds=max(0, int(now - self._started)),
            cpu_usage_percent=_number(system, "cpu_usage_percent"),
            memory_usage_mb=int(_number(system, "memory_used_bytes")) // MIB,
            families=families,
        )


def _active(pool: PoolFacts) -> int:
    return sum(worker.state != "crashed" for worker in pool.workers)


def _pool_family(pool: PoolFacts, crashed_before: int, seconds: float) -> Facts:
    family: Facts = {
        "workers_active": _active(pool),
        "workers_executing": sum(worker.state == "executing" for worker in pool.workers),
        "workers_total_spawned": pool.spawned,
        "workers_total_crashed": pool.crashed,
        "workers_crashes_per_hour": _per(_HOUR_S, pool.crashed - crashed_before, seconds),
    }
    for worker in pool.workers[:MAX_WORKERS_SHOWN]:
        family[f"worker_{worker.local_id}"] = _worker_line(worker)
    return family


def _worker_line(worker: WorkerFacts) -> str:
    task = "" if worker.attempt_id is None else f" task={worker.attempt_id}"
    return f"{worker.state}{task} done={worker.tasks_completed} up={int(worker.uptime_s)}s"


def _task_family(tasks: TaskFacts) -> Facts:
    return {
        "tasks_completed_last_minute": tasks.last_minute,
        "tasks_completed_last_hour": tasks.last_hour,
        "tasks_completed_total": tasks.completed,
        "tasks_succeeded": tasks.succeeded,
        "tasks_failed": tasks.failed,
        "tasks_cancelled": tasks.cancelled,
        "avg_execution_duration_ms": tasks.avg_execution_ms,
        "p50_execution_duration_ms": tasks.p50_execution_ms,
        "p95_execution_duration_ms": tasks.p95_execution_ms,
        "p99_execution_duration_ms": tasks.p99_execution_ms,
        "avg_fetch_duration_ms": tasks.avg_fetch_ms,
        "avg_report_duration_ms": tasks.avg_report_ms,
        "peak_memory_bytes": tasks.peak_memory_bytes,
        "cpu_time_ms": tasks.cpu_time_ms,
        "artifacts_uploaded": tasks.artifacts,
        "artifacts_size_bytes": tasks.artifact_bytes,
    }


def _suite_family(suite: SuiteFacts, tasks: TaskFacts) -> Facts:
    return {
        "suite_uuid": None if suite.suite_uuid is None else str(suite.suite_uuid),
        "phase": suite.phase,
        "result": suite.outcome,
        "prep_duration_ms": suite.prep_ms,
        "prep_retry_count": suite.prep_retries,
        "execution_duration_ms": suite.execution_ms,
        "cleanup_duration_ms": suite.cleanup_ms,
        "cleanup_retry_count": suite.cleanup_retries,
        "tasks_processed": tasks.suite_completed,
        "tasks_succeeded": tasks.suite_succeeded,
        "tasks_failed": tasks.suite_failed,
    }


def _ipc_family(ipc: IpcStats, before: IpcStats, seconds: float) -> Facts:
    return {
        "fetch_requests_total": ipc.fetches,
        "fetch_requests_per_sec": _per(1.0, ipc.fetches - before.fetches, seconds),
        "fetch_p50_latency_us": ipc.fetch_p50_us,
        "fetch_p95_latency_us": ipc.fetch_p95_us,
        "fetch_p99_latency_us": ipc.fetch_p99_us,
        "report_requests_total": ipc.reports,
        "report_requests_per_sec": _per(1.0, ipc.reports - before.reports, seconds),
        "heartbeats_total": ipc.heartbeats,
        "control_messages_sent": ipc.published,
        "ipc_errors_total": ipc.refused,
        "ipc_undelivered_total": ipc.undelivered,
        "payloads_by_file_total": ipc.spilled,
        "workers_parked": ipc.parked,
        "tasks_on_shelf": ipc.on_shelf,
        "longest_silence_s": round(ipc.silent_s, 3),
    }


def _lease_family(lease: LeaseFacts, suite: SuiteFacts) -> Facts:
    return {
        "assignment_id": lease.assignment_id,
        "suite_uuid": None if lease.suite_uuid is None else str(lease.suite_uuid),
        "lease_age_s": round(lease.age_s, 1),
        "lease_remaining_s": round(lease.remaining_s, 1),
        "lease_renewals": lease.renewals,
        "lease_early_breaks": lease.early_breaks,
        "idle_duration_s": suite.idle_s,
        "context_switches_total": suite.switches,
    }


def _per(unit_s: float, growth: int, seconds: float) -> float:
    """A counter that shrank belongs to a part that was started anew: its growth is unknown."""
    return round(unit_s * growth / seconds, 3) if seconds > 0 and growth > 0 else 0.0


def _number(facts: Facts, name: str) -> float:
    value = facts.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
