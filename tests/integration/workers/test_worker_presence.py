"""Our own absences: nobody is reaped for a silence that was ours."""

import asyncio
from datetime import timedelta

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now

from accounts.models import User
from core import clock
from runners.models import IngestPresence, Runner, RunnerLease
from runners.services.presence import gap_s, is_served, keep_presence, mark_served
from tests.integration.workers.inprocess import Site, WorkerSide
from tests.integration.workers.people import new_task
from tests.integration.workers.time_passes import expire_leases, reap, seconds_left
from workers import periodic


def test_nobody_is_reaped_right_after_we_were_away(site: Site, owner: User, worker: WorkerSide):
    new_task(owner)
    ttl_s = 120.0
    worker.fetch()
    site.run(mark_served(lease_ttl_s=ttl_s))
    assert is_served(lease_ttl_s=ttl_s)
    # Ten minutes later, in which no coordinator could take a beat.
    away = timedelta(seconds=600)
    IngestPresence.objects.update(seen_at=F("seen_at") - away, up_since=F("up_since") - away)
    RunnerLease.objects.update(expires_at=Now() - timedelta(seconds=300))
    assert not is_served(lease_ttl_s=ttl_s), "sweeps that judge by silence have to wait"
    site.run(mark_served(lease_ttl_s=ttl_s))
    assert is_served(lease_ttl_s=ttl_s)
    assert 590 < seconds_left() <= 600
    assert reap() == 0


def test_a_worker_that_was_dead_before_we_went_away_stays_dead(
    site: Site, owner: User, worker: WorkerSide
):
    site.run(mark_served(lease_ttl_s=120))
    IngestPresence.objects.update(seen_at=Now() - timedelta(seconds=600))
    expire_leases(900)
    site.run(mark_served(lease_ttl_s=120))
    assert seconds_left() < 0


def test_marks_without_a_gap_renew_nothing(site: Site, worker: WorkerSide):
    site.run(mark_served(lease_ttl_s=120))
    began = IngestPresence.objects.get().up_since
    IngestPresence.objects.update(seen_at=Now() - timedelta(seconds=gap_s(120) - 2))
    expire_leases()
    site.run(mark_served(lease_ttl_s=120))
    assert IngestPresence.objects.get().up_since == began
    assert seconds_left() < 0


def test_a_retirement_waits_while_nobody_serves(worker: WorkerSide):
    expire_leases(settings.MITOSIS.worker_inactive_s + 10)
    hour_ago = clock.now() - timedelta(hours=1)
    IngestPresence.objects.create(id=1, up_since=hour_ago, seen_at=hour_ago)
    periodic.retire_silent_workers()
    assert Runner.objects.get().revoked_at is None


def test_presence_is_marked_as_long_as_the_site_lives(site: Site):
    async def live_shortly() -> None:
        async with keep_presence(lease_ttl_s=2.4):
            await asyncio.sleep(0.5)

    site.run(live_shortly())
    row = IngestPresence.objects.get()
    assert 0.3 < (row.seen_at - row.up_since).total_seconds() < 0.6


def test_marking_presence_survives_a_database_that_is_away(transactional_db: None):
    lost = Site("postgresql://nobody@127.0.0.1:9/nothing")

    async def live_shortly() -> None:
        async with keep_presence(lease_ttl_s=0.24):
            await asyncio.sleep(0.1)

    lost.run(live_shortly())
    lost.close()
