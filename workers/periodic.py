"""Sweeps over workers, run by Celery beat: each is idempotent, set-based and under a lock.

Ended leases are reaped by tasks.periodic for every kind of runner. Here: tasks left in the hands of
removed workers, shutdowns that were interrupted, workers that fell silent, and workers that
stayed away.
"""

from typing import Final

from celery import shared_task
from django.conf import settings

from core.locks import try_advisory_xact_lock
from managers.services.sweeps import note_run
from runners.services.presence import is_served
from tasks.services.reclaim import reclaim_from_runners
from workers.services.departure import end_leaving, list_removed_holders, retire_silent
from workers.services.staleness import mark_stale

END_DEPARTURES: Final = "workers.end_departures"
MARK_STALE: Final = "workers.mark_stale"
RETIRE_SILENT: Final = "workers.retire_silent"
STALE_PERIOD_S: Final = 60.0
RETIRE_PERIOD_S: Final = 60.0

SCHEDULE: Final = {
    END_DEPARTURES: settings.MITOSIS.sweep_s,
    MARK_STALE: STALE_PERIOD_S,
    RETIRE_SILENT: RETIRE_PERIOD_S,
}


@shared_task(name=END_DEPARTURES)
def end_departures() -> None:
    """Finish what a process that died half-way through a departure left undone."""
    with try_advisory_xact_lock(END_DEPARTURES) as is_ours:
        if not is_ours:
            return
        end_leaving()
        removed = list_removed_holders()
        if removed:
            batch = settings.MITOSIS.sweep_batch
            reason = "its worker was removed"
            reclaim_from_runners(removed, charge=False, max_tasks=batch, reason=reason)
        note_run(END_DEPARTURES)


@shared_task(name=MARK_STALE)
def mark_stale_workers() -> None:
    """Say once of each silent worker that it is; never for our own absence."""
    policy = settings.MITOSIS
    with try_advisory_xact_lock(MARK_STALE) as is_ours:
        if is_ours and is_served(lease_ttl_s=policy.lease_ttl_s):
            mark_stale(grace_s=policy.reaper_grace_s, max_workers=policy.sweep_batch)
        note_run(MARK_STALE)


@shared_task(name=RETIRE_SILENT)
def retire_silent_workers() -> None:
    """End workers that have been stale for long; never on the word of a coordinator that slept."""
    policy = settings.MITOSIS
    with try_advisory_xact_lock(RETIRE_SILENT) as is_ours:
        if is_ours and is_served(lease_ttl_s=policy.lease_ttl_s):
            retire_silent(inactive_s=policy.worker_inactive_s)
        note_run(RETIRE_SILENT)
