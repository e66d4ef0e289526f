"""Gauges that are true for the whole installation, read from the database when asked.

Every process answers the same, so aggregate them with `max`, never with `sum`. One read serves all
scrapes of a few seconds. A database that is away is a gauge too: the page still comes.
"""

import time
from collections.abc import Iterator
from threading import Lock
from typing import Final

import structlog
from django.db import DatabaseError, connection, transaction
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from psycopg_pool import PoolTimeout
from typing_extensions import override

from mitosis_site.metrics import managers, queue

log = structlog.get_logger(__name__)


class _Database(Collector):
    """Asked by the registry; every family is read in one transaction, so they fit together."""

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        up = GaugeMetricFamily("mitosis_database_up", "1 when PostgreSQL answered this scrape")
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                families = [*queue.read(cursor), *managers.read(cursor)]
        except (DatabaseError, PoolTimeout) as error:
            log.warning("metrics.database_away", reason=type(error).__name__)
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        yield from families


class Fleet:
    """The page of the gauges, kept for a moment."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_NeverDescribed())
        self._lock = Lock()
        self._page = b""
        self._read_at = float("-inf")

    def page(self, *, max_age_s: float) -> bytes:
        """The text; whoever asks while it is being read waits for that one."""
        with self._lock:
            if time.monotonic() - self._read_at > max_age_s:
                self._page = generate_latest(self._registry)
                self._read_at = time.monotonic()
            return self._page


class _NeverDescribed(_Database):
    """A registry describes a collector by collecting it, at start, when there is no database."""

    def describe(self) -> list[GaugeMetricFamily]:
        return []


FLEET: Final = Fleet()
