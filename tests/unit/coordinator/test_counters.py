"""Labels of counters are bounded whatever callers bring; a series keeps its count."""

import uuid

import pytest
from prometheus_client import generate_latest

from core import counters


def unique() -> str:
    return f"test_{uuid.uuid4().hex}"


def page() -> str:
    return generate_latest(counters.REGISTRY).decode()


def test_names_beyond_the_limit_are_booked_under_other() -> None:
    name = unique()
    family = counters.counter(name, "a test", counters.first_of("tenant", 2))
    for tenant in ("a", "b", "c", "d", "a"):
        family.of(tenant).inc()
    lines = {line for line in page().splitlines() if line.startswith(f"{name}_total")}
    assert lines == {
        f'{name}_total{{tenant="a"}} 2.0',
        f'{name}_total{{tenant="b"}} 1.0',
        f'{name}_total{{tenant="other"}} 2.0',
    }


def test_a_flood_of_names_costs_no_memory() -> None:
    family = counters.gauge(unique(), "a test", counters.first_of("worker", 3))
    for number in range(1000):
        family.of(str(number)).set(number)
    assert len(family._series) == 3
    assert len(family._seen[0]) == 3


def test_a_closed_list_takes_nothing_else() -> None:
    name = unique()
    family = counters.counter(
        name, "a test", counters.one_of("dir", ("in", "out")), counters.first_of("tenant", 5)
    )
    family.of("in", "a").inc(7)
    family.of("sideways", "a").inc(1)
    assert f'{name}_total{{dir="in",tenant="a"}} 7.0' in page()
    assert f'{name}_total{{dir="other",tenant="a"}} 1.0' in page()
    assert "sideways" not in page()


def test_the_number_of_labels_is_checked() -> None:
    family = counters.counter(unique(), "a test", counters.first_of("tenant", 5))
    with pytest.raises(ValueError, match="1 labels are declared, 2 were given"):
        family.of("a", "b")


def test_a_metric_without_labels_is_its_own_series() -> None:
    name = unique()
    family = counters.histogram(name, "a test", buckets=(1, 2))
    family.of().observe(1.5)
    assert f'{name}_bucket{{le="2.0"}} 1.0' in page()


def test_the_names_of_the_control_plane_are_there() -> None:
    text = page()
    for name in (
        "ws_conn_active",
        "ws_heartbeat_miss_total",
        "ws_frame_bytes_total",
        "cmd_dispatch_total",
        "cmd_retry_total",
        "result_latency_ms",
        "pkg_ops_total",
    ):
        assert f"# TYPE {name} " in text
