"""Periodic jobs of managers and suites' scheduling; collected by mitosis_site.celery."""

from typing import Final

from celery import shared_task
from django.conf import settings

from managers.services.sweeps import (
    MATCHING_PERIODS,
    PARTITION_PERIODS,
    ROLL_UP_PERIODS,
    run_sweep,
)

EXPIRE: Final = "managers.expire"
QUARANTINE: Final = "managers.quarantine"
MATCH: Final = "managers.match"
ASSIGN: Final = "managers.schedule"
ROLL_UP: Final = "managers.roll_up_metrics"
KEEP_PARTITIONS: Final = "managers.keep_partitions"

SCHEDULE: Final = {
    EXPIRE: settings.MITOSIS.sweep_s,
    QUARANTINE: settings.MITOSIS.sweep_s,
    MATCH: MATCHING_PERIODS * settings.MITOSIS.sweep_s,
    ASSIGN: settings.MITOSIS.sweep_s,
    ROLL_UP: ROLL_UP_PERIODS * settings.MITOSIS.sweep_s,
    KEEP_PARTITIONS: PARTITION_PERIODS * settings.MITOSIS.sweep_s,
}


@shared_task(name=EXPIRE)
def expire_heartbeats() -> int:
    """Managers whose lease ran out."""
    return run_sweep(EXPIRE)


@shared_task(name=QUARANTINE)
def quarantine_hosts() -> int:
    """Hosts that fail what succeeds elsewhere, and those that may be tried again."""
    return run_sweep(QUARANTINE)


@shared_task(name=MATCH)
def match_everything() -> int:
    """Eligibility that no trigger has brought up to date."""
    return run_sweep(MATCH)


@shared_task(name=ASSIGN)
def schedule_hosts() -> int:
    """Leases renewed and ended, idle hosts given to suites."""
    return run_sweep(ASSIGN)


@shared_task(name=ROLL_UP)
def roll_up_metrics() -> int:
    """Full hours of what managers measured."""
    return run_sweep(ROLL_UP)


@shared_task(name=KEEP_PARTITIONS)
def keep_metric_partitions() -> int:
    """Partitions of the metrics history, made ahead and dropped when they are old."""
    return run_sweep(KEEP_PARTITIONS)
