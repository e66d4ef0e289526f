"""The history of what managers measured: samples written with heartbeats, hours, partitions.

Samples come about every 30 s and are kept for a week, hourly roll-ups for three months. Upkeep and
roll-up are sweeps (managers.services.sweeps): idempotent, under the sweep's lock. Whatever fails
here is a gap in a chart; it never fails a heartbeat.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import psycopg
import structlog
from django.db import DatabaseError, connection, transaction
from psycopg import sql

from core import clock
from core.errors import DatabaseUnavailable
from core.pg import get_pool, load_sql
from managers.metrics import numbers_of

log = structlog.get_logger(__name__)

_ADD: Final = load_sql("managers", "metrics/add_samples")
_DUE_HOURS: Final = load_sql("managers", "metrics/due_hours")
_SAMPLED: Final = load_sql("managers", "metrics/sampled_managers")
_ROLL_UP: Final = load_sql("managers", "metrics/roll_up")
_PARTITIONS: Final = load_sql("managers", "metrics/partitions")
_FORGET_HOURS: Final = (
    "DELETE FROM manager_hours_done WHERE at < clock_timestamp() - make_interval(days => %s)"
)

SAMPLE_S: Final = 25.0  # least time between two samples: beats come every 30 s, with jitter
HOURS_PER_RUN: Final = 6
# An hour of 100 managers is 600,000 numbers, below a second.
MANAGERS_PER_ROLL_UP: Final = 100
AHEAD: Final = 3  # partitions made before they are needed: beat may be away for days

Measured: TypeAlias = Sequence[tuple[int, Mapping[str, object]]]


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A table cut by time. A partition may go when its newest row is older than `keep_days`."""

    table: str
    days: int
    keep_days: int


async def add_samples(measured: Measured) -> None:
    """Store what managers measured, one statement for all of them; never raises."""
    if not measured:
        return
    try:
        await get_pool().execute(_ADD, _parameters(measured))
    except (DatabaseUnavailable, psycopg.Error) as error:
        # Not only while the server is away: what was on its way to the default partition when a
        # new one was attached is refused.
        log.warning("metrics.samples_lost", count=len(measured), reason=type(error).__name__)


def add_samples_sync(measured: Measured) -> None:
    """As add_samples, on Django's connection."""
    if not measured:
        return
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_ADD, _parameters(measured))
    except DatabaseError as error:
        log.warning("metrics.samples_lost", count=len(measured), reason=type(error).__name__)


def roll_up_hours(*, sample_days: int) -> int:
    """Summarise full hours that nobody has summarised yet; answers how many."""
    with connection.cursor() as cursor:
        cursor.execute(_DUE_HOURS, {"days": sample_days, "hours": HOURS_PER_RUN})
        hours = [row[0] for row in cursor.fetchall()]
        for hour in hours:
            with transaction.atomic():
                _roll_up(hour)
    return len(hours)


def keep_partitions(*, sample_days: int, hourly_days: int) -> int:
    """Make the partitions that are needed soon and drop those nobody reads; answers how many."""
    changed = 0
    for kind in (
        Partitioned("manager_samples", days=1, keep_days=sample_days),
        Partitioned("manager_hours", days=7, keep_days=hourly_days),
    ):
        names = _read_partitions(kind.table)
        for begin in _needed(kind, clock.now()):
            if _name(kind, begin) not in names:
                _make(kind, begin)
                changed += 1
        changed += _drop_old(kind, names)
    with connection.cursor() as cursor:
        cursor.execute(_FORGET_HOURS, [sample_days + 1])
    return changed


def _parameters(measured: Measured) -> dict[str, Any]:
    return {
        "manager_ids": [manager_id for manager_id, _ in measured],
        "numbers": [json.dumps(numbers_of(metrics)) for _, metrics in measured],
    }


def _roll_up(hour: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_SAMPLED, {"hour": hour})
        ids = [row[0] for row in cursor.fetchall()]
        for start in range(0, len(ids), MANAGERS_PER_ROLL_UP):
            some = ids[start : start + MANAGERS_PER_ROLL_UP]
            cursor.execute(_ROLL_UP, {"hour": hour, "manager_ids": some})
        cursor.execute(
            "INSERT INTO manager_hours_done (at) VALUES (%s) ON CONFLICT DO NOTHING", [hour]
        )


def _read_partitions(table: str) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(_PARTITIONS, {"table": table})
        return {row[0] for row in cursor.fetchall()}


def _needed(kind: Partitioned, now: datetime) -> Iterator[datetime]:
    """Where partitions begin: the one of now and some after it, on multiples of their width."""
    day = (now - _EPOCH).days
    first = day - day % kind.days
    for step in range(AHEAD + 1):
        yield _EPOCH + timedelta(days=first + step * kind.days)


def _make(kind: Partitioned, begin: datetime) -> None:
    """A new partition; rows of its time that wait in the default one move over.

    Attached rather than created in place: that does not stand in the way of heartbeats.
    """
    end = begin + timedelta(days=kind.days)
    parent, default = sql.Identifier(kind.table), sql.Identifier(f"{kind.table}_default")
    own, lower, upper = sql.Identifier(_name(kind, begin)), sql.Literal(begin), sql.Literal(end)
    steps = (
        sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(default),
        sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(own, parent),
        sql.SQL(
            "WITH moved AS (DELETE FROM {} WHERE at >= {} AND at < {} RETURNING *)"
            " INSERT INTO {} SELECT * FROM moved"
        ).format(default, lower, upper, own),
        sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(
            parent, own, lower, upper
        ),
    )
    with transaction.atomic(), connection.cursor() as cursor:
        for step in steps:
            cursor.execute(step)
    log.info("metrics.partition_made", table=kind.table, begin=begin.date().isoformat())


def _drop_old(kind: Partitioned, names: set[str]) -> int:
    limit = clock.now() - timedelta(days=kind.keep_days + kind.days)
    old = [name for name in sorted(names) if name < _name(kind, limit)]
    with connection.cursor() as cursor:
        for name in old:
            cursor.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))
        cursor.execute(
            sql.SQL("DELETE FROM {} WHERE at < {}").format(
                sql.Identifier(f"{kind.table}_default"), sql.Literal(limit)
            )
        )
    if old:
        log.info("metrics.partitions_dropped", table=kind.table, count=len(old))
    return len(old)


def _name(kind: Partitioned, begin: datetime) -> str:
    return f"{kind.table}_p{begin:%Y%m%d}"


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
