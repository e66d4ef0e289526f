"""Whether runners could reach us: the guard against reaping a fleet for our own absence.

Each serving process marks a row every few seconds (`keep_presence`, held by the site's lifespan).
Sweeps that judge by silence ask `is_served` first, so nothing is reaped while nobody listens; and
the first mark after a gap gives every runner one full lease, so nothing is reaped right after.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog
from django.db.models.functions import Now

from core.errors import DatabaseUnavailable
from core.pg import get_pool, load_sql
from runners.models import IngestPresence

log = structlog.get_logger(__name__)

_MARK: Final = load_sql("runners", "mark_served")
# A mark every 5 s at the default lease of 120 s; four missed ones are a gap.
_MARKS_PER_LEASE: Final = 24
_MISSED_MARKS: Final = 4


@asynccontextmanager
async def keep_presence(*, lease_ttl_s: float) -> AsyncIterator[None]:
    """Mark this process as serving while the block runs; the pool is open."""
    marking = asyncio.create_task(_mark_for_ever(lease_ttl_s))
    try:
        yield
    finally:
        marking.cancel()
        await asyncio.gather(marking, return_exceptions=True)


async def mark_served(*, lease_ttl_s: float) -> None:
    """One mark; after a gap it renews all leases that ran when the gap began."""
    parameters = {"gap_s": gap_s(lease_ttl_s), "lease_ttl_s": lease_ttl_s}
    [(is_new, spared)] = await get_pool().fetch(_MARK, parameters)
    if is_new:
        log.info("presence.began", leases_renewed=spared)


def is_served(*, lease_ttl_s: float) -> bool:
    """Whether heartbeats could arrive just now. True where nobody has ever kept marks."""
    row = IngestPresence.objects.annotate(now=Now()).filter(pk=1).first()
    return row is None or (row.now - row.seen_at).total_seconds() <= gap_s(lease_ttl_s)


def gap_s(lease_ttl_s: float) -> float:
    """How long without a mark means that nobody serves."""
    return lease_ttl_s / _MARKS_PER_LEASE * _MISSED_MARKS


async def _mark_for_ever(lease_ttl_s: float) -> None:
    while True:
        try:
            await mark_served(lease_ttl_s=lease_ttl_s)
        except DatabaseUnavailable:
            # No mark is the right mark: without a database no heartbeat arrives either.
            log.warning("presence.not_marked")
        await asyncio.sleep(lease_ttl_s / _MARKS_PER_LEASE)
