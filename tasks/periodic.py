"""Celery wrappers of the sweeps over tasks; the bodies are in tasks.services.

The coordinator runs the same bodies itself when beat has been silent for two periods.
"""

from datetime import timedelta
from typing import Final

from celery import shared_task
from django.conf import settings
from django.db.models.functions import Now

from core import clock
from managers.services.sweeps import note_run
from runners.services.presence import is_served
from tasks.models import Submission
from tasks.services import counts, reclaim, retention
from tasks.services.artifacts import discard_superseded
from tasks.services.logs import discard_old_logs
from tasks.services.suite_cancel import end_leftovers
from tasks.services.unreachable import end_unreachable

# How long an Idempotency-Key is remembered: longer than any client retries.
SUBMISSION_MEMORY: Final = timedelta(days=2)
FOLD_PERIOD_S: Final = 60.0
FORGET_PERIOD_S: Final = 3600.0
# Slices of one run, at most: with 5,000 events each, 8,000 a second are forgotten in the long run.
TRIM_PERIOD_S: Final = 60.0
MAX_TRIM_SLICES: Final = 100
# Live output is a convenience while a task runs; its archive is the artifact.
LIVE_OUTPUT_MEMORY: Final = timedelta(days=30)
# Bounds one run of the hourly job: what is left waits for the next hour.
MAX_DISCARD_STEPS: Final = 200

SCHEDULE: Final = {
    "tasks.reap": settings.MITOSIS.sweep_s,
    "tasks.end_overdue": settings.MITOSIS.sweep_s,
    "tasks.end_cancelled": settings.MITOSIS.sweep_s,
    "tasks.end_unreachable": settings.MITOSIS.sweep_s,
    "tasks.fold_counts": FOLD_PERIOD_S,
    "tasks.trim_events": TRIM_PERIOD_S,
    "tasks.forget_submissions": FORGET_PERIOD_S,
    "tasks.discard_uploads": FORGET_PERIOD_S,
}


@shared_task(name="tasks.reap")
def reap() -> None:
    """Requeue what runners with an ended lease hold; never for our own absence."""
    if is_served(lease_ttl_s=settings.MITOSIS.lease_ttl_s):
        _reap_all()
    note_run("tasks.reap")


def _reap_all() -> None:
    policy = settings.MITOSIS
    # Again while a sweep comes back with something: one takes a bounded number of tasks.
    while reclaim.reap_expired(
        grace_s=policy.reaper_grace_s,
        patience_s=policy.mass_expiry_patience_s,
        mass_expiry_ratio=policy.mass_expiry_ratio,
        max_tasks=policy.sweep_batch,
    ).count:
        pass


@shared_task(name="tasks.end_overdue")
def end_overdue() -> None:
    """End held tasks far past their deadlines."""
    policy = settings.MITOSIS
    reclaim.end_overdue(
        cancel_silence_s=policy.cancel_silence_s,
        grace_s=policy.overdue_grace_s,
        exclusive_grace_s=policy.exclusive_overdue_grace_s,
        max_tasks=policy.sweep_batch,
    )
    note_run("tasks.end_overdue")


@shared_task(name="tasks.end_cancelled")
def end_cancelled() -> None:
    """End what is left in cancelled suites."""
    end_leftovers(batch=settings.MITOSIS.sweep_batch)
    note_run("tasks.end_cancelled")


@shared_task(name="tasks.end_unreachable")
def end_unreachable_tasks() -> None:
    """End what waits for a runner that is gone."""
    end_unreachable(max_tasks=settings.MITOSIS.sweep_batch)
    note_run("tasks.end_unreachable")


@shared_task(name="tasks.fold_counts")
def fold_counts() -> None:
    """Fold the deltas of suites' counters."""
    counts.fold_counts(max_rows=10 * settings.MITOSIS.sweep_batch)
    note_run("tasks.fold_counts")


@shared_task(name="tasks.trim_events")
def trim_events() -> None:
    """Forget the events of tasks that ended long ago."""
    policy = settings.MITOSIS
    retention.trim_events(
        keep_s=timedelta(days=policy.events_days).total_seconds(),
        max_events=5 * policy.sweep_batch,
        max_slices=MAX_TRIM_SLICES,
    )
    note_run("tasks.trim_events")


@shared_task(name="tasks.forget_submissions")
def forget_submissions() -> None:
    """Drop Idempotency-Keys that no client can still be retrying."""
    Submission.objects.filter(created_at__lt=Now() - SUBMISSION_MEMORY).delete()


@shared_task(name="tasks.discard_uploads")
def discard_uploads() -> None:
    """Remove what superseded attempts uploaded, and live output nobody reads any more."""
    for _ in range(MAX_DISCARD_STEPS):
        if not discard_superseded():
            break
    before = clock.now() - LIVE_OUTPUT_MEMORY
    after_key = ""
    for _ in range(MAX_DISCARD_STEPS):
        after_key = discard_old_logs(before=before, after_key=after_key)
        if not after_key:
            break
