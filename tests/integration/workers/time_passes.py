"""Leases that run out without anybody waiting for it, and the reaper as the sweep calls it."""

from datetime import timedelta

from django.conf import settings
from django.db.models.functions import Now

from core import clock
from runners.models import RunnerLease
from tasks.services.reclaim import reap_expired


def expire_leases(by_s: float = 60) -> None:
    RunnerLease.objects.update(expires_at=Now() - timedelta(seconds=by_s))


def reap() -> int:
    policy = settings.MITOSIS
    swept = reap_expired(
        grace_s=policy.reaper_grace_s,
        patience_s=policy.mass_expiry_patience_s,
        mass_expiry_ratio=policy.mass_expiry_ratio,
        max_tasks=policy.sweep_batch,
    )
    return swept.count


def seconds_left() -> float:
    return (RunnerLease.objects.get().expires_at - clock.now()).total_seconds()
