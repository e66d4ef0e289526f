"""What one process counts about itself, under the names that `/metrics` shows.

A count lives in memory: it belongs to one process, starts at zero with it and is never shared.
Prometheus scrapes every process by itself and adds up. What is true for the whole installation
(queues, managers, suites) is read from the database when asked and is not counted here.

Labels are bounded: a label that takes names from outside keeps the first `limit` of them and books
the rest under `other`, so that no caller can grow the page or the memory of the process.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase, disable_created_metrics

OTHER: Final = "other"
REGISTRY: Final = CollectorRegistry(auto_describe=True)
# A second series per counter that says when it began: twice the page for nothing we use.
disable_created_metrics()  # type: ignore[no-untyped-call]  # theirs

Metric = TypeVar("Metric", bound=MetricWrapperBase)


@dataclass(frozen=True, slots=True)
class Label:
    """A label and what it may say: a closed list of values, or the first `limit` names seen."""

    name: str
    limit: int = 0
    values: frozenset[str] = frozenset()


def one_of(name: str, values: Iterable[str]) -> Label:
    """A label with a closed list; anything else is booked under `other`."""
    return Label(name, values=frozenset(values))


def first_of(name: str, limit: int) -> Label:
    """A label whose values come from outside."""
    return Label(name, limit=limit)


class Family(Generic[Metric]):
    """One metric with its labels; `of(...)` gives the series to count in."""

    def __init__(self, metric: Metric, labels: Sequence[Label]) -> None:
        self._metric = metric
        self._labels = tuple(labels)
        self._seen: list[set[str]] = [set(label.values) for label in labels]
        self._series: dict[tuple[str, ...], Metric] = {}
        self._lock = Lock()

    def of(self, *values: str) -> Metric:
        """The series of these label values, in the order in which the labels were declared."""
        if len(values) != len(self._labels):
            raise ValueError(f"{len(self._labels)} labels are declared, {len(values)} were given")
        series = self._series.get(values)
        return self._find(values) if series is None else series

    def _find(self, values: tuple[str, ...]) -> Metric:
        if not self._labels:
            return self._metric
        with self._lock:
            known = tuple(map(self._bounded, range(len(values)), values))
            series = self._metric.labels(*known)
            # What was booked elsewhere is not remembered: that memory would have no bound.
            if known == values:
                self._series[values] = series
            return series

    def _bounded(self, place: int, value: str) -> str:
        seen, limit = self._seen[place], self._labels[place].limit
        if value in seen:
            return value
        if len(seen) >= limit:
            return OTHER
        seen.add(value)
        return value


def counter(name: str, text: str, *labels: Label) -> Family[Counter]:
    """Counts up only. The page shows its name with `_total` at the end."""
    names = [label.name for label in labels]
    return Family(Counter(name, text, names, registry=REGISTRY), labels)


def gauge(name: str, text: str, *labels: Label) -> Family[Gauge]:
    """Goes up and down with what this process holds just now."""
    names = [label.name for label in labels]
    return Family(Gauge(name, text, names, registry=REGISTRY), labels)


def histogram(name: str, text: str, *labels: Label, buckets: Sequence[float]) -> Family[Histogram]:
    """How often a measured value was at most each of the buckets; the unit ends the name."""
    names = [label.name for label in labels]
    return Family(Histogram(name, text, names, registry=REGISTRY, buckets=buckets), labels)


# The targets in the design (1, 10, 20, 50, 100, 200, 300 and 500 ms) are borders of buckets.
LATENCY_S: Final = (
    0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2.5, 5, 10, 30,
)  # fmt: skip

# --- the control plane of direct workers: a tenant is a group ---

TENANTS: Final = 100  # groups with a series of their own in one process
_TENANT: Final = first_of("tenant", TENANTS)
_NODE_TYPE: Final = first_of("node_type", 20)
# From a round trip on loopback to an hour's work.
_LATENCY_MS: Final = (10, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 60_000, 600_000, 3_600_000)

WS_CONN_ACTIVE: Final = gauge("ws_conn_active", "Direct workers connected to this process", _TENANT)
WS_HEARTBEAT_MISS: Final = counter(
    "ws_heartbeat_miss", "Heartbeats that did not come in time", _TENANT, first_of("worker", 200)
)
WS_FRAME_BYTES: Final = counter(
    "ws_frame_bytes", "Bytes in frames of direct workers", _TENANT, one_of("dir", ("in", "out"))
)
CMD_DISPATCH: Final = counter(
    "cmd_dispatch", "Commands sent to direct workers", _TENANT, _NODE_TYPE
)
CMD_RETRY: Final = counter("cmd_retry", "Frames sent again", first_of("reason", 20))
RESULT_LATENCY_MS: Final = histogram(
    "result_latency_ms",
    "From the dispatch of a command to its result",
    _TENANT,
    _NODE_TYPE,
    buckets=_LATENCY_MS,
)
PKG_OPS: Final = counter(
    "pkg_ops",
    "Package operations",
    _TENANT,
    one_of("op", ("install", "uninstall")),
    first_of("status", 10),
)
