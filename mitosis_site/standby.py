"""Runs the periodic jobs inside a coordinator process when Celery beat has fallen silent.

Every job is idempotent and under its own lock, so several processes that step in at once, or a beat
that comes back, do no harm. Redis and Celery thereby never decide whether work is recovered.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import structlog
from django.conf import settings
from django.db import DatabaseError, close_old_connections
from psycopg_pool import PoolTimeout

from core.errors import DomainError
from managers.services.sweeps import find_silent, run_due_sweeps
from notifications import periodic as notification_jobs
from suites import periodic as suite_jobs
from tasks import periodic as task_jobs
from workers import periodic as worker_jobs

log = structlog.get_logger(__name__)

# The jobs of suites and managers are known to managers.services.sweeps; these are the others.
JOBS: Final[dict[str, Callable[[], object]]] = {
    "tasks.reap": task_jobs.reap,
    "tasks.end_overdue": task_jobs.end_overdue,
    "tasks.end_cancelled": task_jobs.end_cancelled,
    "tasks.end_unreachable": task_jobs.end_unreachable_tasks,
    "tasks.fold_counts": task_jobs.fold_counts,
    "tasks.trim_events": task_jobs.trim_events,
    suite_jobs.END_HOPELESS: suite_jobs.end_hopeless_tasks,
    worker_jobs.END_DEPARTURES: worker_jobs.end_departures,
    worker_jobs.MARK_STALE: worker_jobs.mark_stale_workers,
    worker_jobs.RETIRE_SILENT: worker_jobs.retire_silent_workers,
    notification_jobs.FIND_BURSTS: notification_jobs.find_bursts,
    # Last: it talks to strangers, and nothing else may wait for them.
    notification_jobs.SEND: notification_jobs.send_deliveries,
}
_PERIODS: Final = {
    **task_jobs.SCHEDULE,
    **suite_jobs.SCHEDULE,
    **worker_jobs.SCHEDULE,
    **notification_jobs.SCHEDULE,
}


@asynccontextmanager
async def standing_by() -> AsyncIterator[None]:
    """Look after the jobs while the block runs."""
    watching = asyncio.create_task(_watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def run_silent_jobs() -> list[str]:
    """Run what nobody has run for two periods; answers the names."""
    ran = run_due_sweeps()
    for name in _silent_jobs():
        log.info("jobs.fallback", name=name)
        JOBS[name]()
        ran.append(name)
    return ran


def _silent_jobs() -> list[str]:
    silence = settings.MITOSIS.beat_silence_periods
    by_patience: dict[float, list[str]] = {}
    for name in JOBS:
        by_patience.setdefault(_PERIODS[name] * silence, []).append(name)
    return [
        name
        for patience_s, names in by_patience.items()
        for name in find_silent(names, patience_s=patience_s)
    ]


async def _watch() -> None:
    while True:
        # Not at once: a stack that starts as a whole has its beat a moment later.
        await asyncio.sleep(settings.MITOSIS.sweep_s)
        try:
            await asyncio.to_thread(_run_on_own_connection)
        except (DatabaseError, PoolTimeout, DomainError) as error:
            log.warning("jobs.fallback_failed", reason=str(error))


def _run_on_own_connection() -> None:
    try:
        run_silent_jobs()
    finally:
        close_old_connections()
