"""Periodic jobs of webhooks; collected by mitosis_site.celery, run by the standby without beat."""

from datetime import timedelta
from typing import Final

from celery import shared_task
from django.conf import settings

from managers.services.sweeps import note_run
from notifications.services import bursts, sending

SEND: Final = "notifications.send"
FIND_BURSTS: Final = "notifications.find_bursts"
FORGET: Final = "notifications.forget_deliveries"

SCHEDULE: Final = {
    SEND: settings.MITOSIS.sweep_s,
    FIND_BURSTS: 6 * settings.MITOSIS.sweep_s,
    FORGET: 3600.0,
}


@shared_task(name=SEND)
def send_deliveries() -> int:
    """What waits to be told. Two at once share the work, row by row."""
    # Noted first: a run may take as long as strangers take to answer.
    note_run(SEND)
    return sending.send_due()


@shared_task(name=FIND_BURSTS)
def find_bursts() -> int:
    """Suites in which many tasks failed within a short time."""
    policy = settings.MITOSIS
    told = bursts.tell_bursts(failures=policy.burst_failures, window_s=policy.burst_window_s)
    note_run(FIND_BURSTS)
    return told


@shared_task(name=FORGET)
def forget_deliveries() -> int:
    """The log of what was told long ago."""
    return sending.forget_old(keep=timedelta(days=settings.MITOSIS.webhook_log_days))
