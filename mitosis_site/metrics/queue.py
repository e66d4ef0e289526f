"""Gauges of tasks, suites, sweeps and webhooks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from django.db.backends.utils import CursorWrapper
from prometheus_client.core import GaugeMetricFamily

from core.counters import OTHER, TENANTS
from core.pg import load_sql
from mitosis_protocol.enums import DeliveryState, SuiteState, TaskPhase

_QUEUE: Final = load_sql("mitosis_site", "metrics/queue")
_BACKLOG: Final = load_sql("mitosis_site", "metrics/backlog")
_SUITES: Final = load_sql("mitosis_site", "metrics/suites")
_SWEEPS: Final = load_sql("mitosis_site", "metrics/sweeps")
_DELIVERIES: Final = load_sql("mitosis_site", "metrics/deliveries")

Gauges = Iterator[GaugeMetricFamily]


def read(cursor: CursorWrapper) -> Gauges:
    yield from _tasks(cursor)
    yield from _backlog(cursor)
    yield from _suites(cursor)
    yield from _sweeps(cursor)
    yield from _deliveries(cursor)


def bounded(rows: Sequence[tuple[str, float]], limit: int = TENANTS) -> dict[str, float]:
    """The largest `limit` names; what the others have is booked under `other`."""
    ranked = sorted(rows, key=lambda row: (-row[1], row[0]))
    kept = dict(ranked[:limit])
    if len(ranked) > limit:
        kept[OTHER] = kept.get(OTHER, 0) + sum(value for _, value in ranked[limit:])
    return kept


def _tasks(cursor: CursorWrapper) -> Gauges:
    cursor.execute(_QUEUE)
    rows = [(group, TaskPhase.from_code(code).value, count) for group, code, count in cursor]
    phases = Counter({phase.value: 0 for phase in TaskPhase})
    groups: Counter[str] = Counter()
    for group, phase, count in rows:
        phases[phase] += count
        groups[group] += count
    tasks = GaugeMetricFamily("mitosis_tasks", "Tasks that have not ended", labels=["phase"])
    for phase, count in phases.items():
        tasks.add_metric([phase], count)
    yield tasks
    depth = GaugeMetricFamily(
        "mitosis_queue_depth", "Tasks of a group that have not ended", labels=["group"]
    )
    for group, count in bounded(list(groups.items())).items():
        depth.add_metric([group], count)
    yield depth


def _backlog(cursor: CursorWrapper) -> Gauges:
    cursor.execute(_BACKLOG)
    rows = cursor.fetchall()
    waiting = GaugeMetricFamily(
        "mitosis_backlog_tasks",
        "Tasks that a runner could claim now, if there were one",
        labels=["group", "runner"],
    )
    for runner in ("manager", "worker"):
        counts = bounded([(group, count) for group, kind, count, _ in rows if kind == runner])
        for group, count in counts.items():
            waiting.add_metric([group, runner], count)
    yield waiting
    hosts = GaugeMetricFamily(
        "mitosis_backlog_hosts",
        "Further hosts that would take up all waiting tasks of suites at once",
        labels=["group"],
    )
    wanted = [(group, count) for group, kind, _, count in rows if kind == "manager"]
    for group, count in bounded(wanted).items():
        hosts.add_metric([group], count)
    yield hosts


def _suites(cursor: CursorWrapper) -> Gauges:
    cursor.execute(_SUITES)
    rows = cursor.fetchall()
    suites = GaugeMetricFamily("mitosis_suites", "Suites by state", labels=["state"])
    counts = {state.value: 0 for state in SuiteState}
    counts.update({SuiteState.from_code(code).value: count for code, count, _, _, _ in rows})
    for state, count in counts.items():
        suites.add_metric([state], count)
    yield suites
    for place, name, text in (
        (2, "mitosis_suites_blocked", "Live suites that were stopped after failures"),
        (3, "mitosis_suites_paused", "Live suites that a person paused"),
        (4, "mitosis_suites_unserved", "Live suites with work and without a host"),
    ):
        yield GaugeMetricFamily(name, text, value=sum(row[place] for row in rows))


def _sweeps(cursor: CursorWrapper) -> Gauges:
    cursor.execute(_SWEEPS)
    age = GaugeMetricFamily(
        "mitosis_sweep_age_seconds", "Since a periodic job ran last", labels=["sweep"]
    )
    for name, seconds in cursor:
        age.add_metric([name], seconds)
    yield age


def _deliveries(cursor: CursorWrapper) -> Gauges:
    cursor.execute(_DELIVERIES)
    counts = {state.value: 0 for state in DeliveryState}
    oldest = 0.0
    for code, count, age_s in cursor:
        state = DeliveryState.from_code(code)
        counts[state.value] = count
        if state is DeliveryState.WAITING:
            oldest = age_s
    deliveries = GaugeMetricFamily(
        "mitosis_webhook_deliveries", "Webhook deliveries in the log", labels=["state"]
    )
    for name, count in counts.items():
        deliveries.add_metric([name], count)
    yield deliveries
    yield GaugeMetricFamily(
        "mitosis_webhook_oldest_waiting_seconds", "Age of the oldest undelivered one", value=oldest
    )
