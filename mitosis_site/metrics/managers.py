"""Gauges of managers and of what their agents measured: the six families, newest sample of each.

Series per manager are for the first MAX_MANAGERS by uuid; sums over the fleet count all of them.
"""

import json
from collections.abc import Iterator
from typing import Final

from django.db.backends.utils import CursorWrapper
from prometheus_client.core import GaugeMetricFamily

from core.pg import load_sql
from managers.metrics import numbers_of
from mitosis_protocol.enums import DesiredState, ManagerState

_STATES: Final = load_sql("mitosis_site", "metrics/manager_states")
_NEWEST: Final = load_sql("mitosis_site", "metrics/manager_samples")
MAX_MANAGERS: Final = 200  # about 20 series each: 4,000 lines of a page

# (name of the gauge, family, name within the family, factor, text)
MEASURED: Final = (
    ("cpu_usage_ratio", "system", "cpu_usage_percent", 0.01, "CPU in use"),
    ("memory_used_bytes", "system", "memory_used_bytes", 1, "Memory in use"),
    ("memory_total_bytes", "system", "memory_total_bytes", 1, "Memory of the host"),
    ("disk_used_bytes", "system", "disk_used_bytes", 1, "Disk in use"),
    ("disk_total_bytes", "system", "disk_total_bytes", 1, "Disk of the host"),
    ("network_rx_bytes_per_second", "system", "network_rx_bytes_per_sec", 1, "Network, received"),
    ("network_tx_bytes_per_second", "system", "network_tx_bytes_per_sec", 1, "Network, sent"),
    ("load1", "system", "load_avg_1min", 1, "Load average of a minute"),
    ("workers_active", "worker_pool", "workers_active", 1, "Workers alive"),
    ("workers_executing", "worker_pool", "workers_executing", 1, "Workers with a task"),
    ("worker_crashes_per_hour", "worker_pool", "workers_crashes_per_hour", 1, "Crash rate"),
    ("tasks_last_minute", "task_execution", "tasks_completed_last_minute", 1, "Tasks in a minute"),
    ("task_p95_seconds", "task_execution", "p95_execution_duration_ms", 0.001, "Execution, p95"),
    ("preparation_seconds", "task_group", "prep_duration_ms", 0.001, "Last preparation"),
    ("cleanup_seconds", "task_group", "cleanup_duration_ms", 0.001, "Last cleanup"),
    ("ipc_fetch_p50_seconds", "ipc", "fetch_p50_latency_us", 1e-6, "IPC fetch, p50"),
    ("ipc_fetch_p99_seconds", "ipc", "fetch_p99_latency_us", 1e-6, "IPC fetch, p99"),
    ("ipc_errors", "ipc", "ipc_errors_total", 1, "IPC requests refused, since the agent started"),
    ("lease_renewals", "lease", "lease_renewals", 1, "Renewals of the present engagement"),
    ("context_switches", "lease", "context_switches_total", 1, "Suites begun since the start"),
)

Gauges = Iterator[GaugeMetricFamily]


def read(cursor: CursorWrapper) -> Gauges:
    yield from _states(cursor)
    yield from _samples(cursor)


def _states(cursor: CursorWrapper) -> Gauges:
    cursor.execute(_STATES)
    states = {state.value: 0 for state in ManagerState}
    wishes = {wish.value: 0 for wish in DesiredState}
    connected = engaged = workers = executing = 0
    for state, wish, count, up, busy, active, running in cursor:
        states[ManagerState.from_code(state).value] += count
        wishes[DesiredState.from_code(wish).value] += count
        connected, engaged = connected + up, engaged + busy
        workers, executing = workers + active, executing + running
    by_state = GaugeMetricFamily("mitosis_managers", "Managers by state", labels=["state"])
    for name, count in states.items():
        by_state.add_metric([name], count)
    yield by_state
    by_wish = GaugeMetricFamily(
        "mitosis_managers_wanted", "Managers by what operators want of them", labels=["wish"]
    )
    for name, count in wishes.items():
        by_wish.add_metric([name], count)
    yield by_wish
    for name, text, value in (
        ("mitosis_managers_connected", "Managers with an open socket", connected),
        ("mitosis_managers_engaged", "Managers that work for a suite", engaged),
        (
            "mitosis_workers_active",
            "Managed workers alive, all hosts that are not offline",
            workers,
        ),
        ("mitosis_workers_executing", "Managed workers with a task", executing),
    ):
        yield GaugeMetricFamily(name, text, value=value)


def _samples(cursor: CursorWrapper) -> Gauges:
    cursor.execute(_NEWEST, {"max_managers": MAX_MANAGERS})
    gauges = {
        name: GaugeMetricFamily(f"mitosis_manager_{name}", text, labels=["manager"])
        for name, _, _, _, text in MEASURED
    }
    age = GaugeMetricFamily(
        "mitosis_manager_heartbeat_age_seconds", "Since the last heartbeat", labels=["manager"]
    )
    for uuid, age_s, sample in cursor:
        age.add_metric([str(uuid)], age_s)
        # Managers say what they like: only finite numbers in the right place are left of it.
        numbers = numbers_of(json.loads(sample))
        for name, family, key, factor, _ in MEASURED:
            value = numbers.get(f"{family}.{key}")
            if value is not None:
                gauges[name].add_metric([str(uuid)], value * factor)
    yield age
    yield from gauges.values()
