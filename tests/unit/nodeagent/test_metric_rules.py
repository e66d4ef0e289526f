"""Figures without a host: parsers, rates, percentiles, counters, phases."""

from pathlib import Path
from uuid import uuid4

import pytest

from nodeagent.ipc.server import IpcStats
from nodeagent.metrics.collect import MetricsCollector
from nodeagent.metrics.facts import LeaseFacts, PoolFacts, TaskFacts, WorkerFacts
from nodeagent.metrics.proc import (
    CpuTimes,
    Memory,
    Traffic,
    parse_cpu,
    parse_disks,
    parse_load,
    parse_memory,
    parse_network,
)
from nodeagent.metrics.rolling import Reservoir, RollingCount
from nodeagent.metrics.suite_meter import SuiteMeter
from nodeagent.metrics.system import SystemSampler, busy_percent, rates
from nodeagent.metrics.task_meter import TaskMeasure, TaskMeter

STAT = b"""cpu  100 0 50 800 50 0 0 0 7 0
cpu0 60 0 30 400 10 0 0 0 0 0
cpu3 40 0 20 400 40 0 0 0 0 0
intr 12345 0 0
ctxt 99
"""
NET = b"""Inter-|   Receive                        |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0
  eth0:1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0
 wlan0: 10 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0
"""
DISKS = b"""   7       0 loop0 1 0 8 0 1 0 8 0 0 0 0
 254       0 vda 10 0 100 0 20 0 200 0 0 0 0 0 0 0 0 0 0
 254       1 vda1 10 0 100 0 20 0 200 0 0 0 0 0 0 0 0 0 0
"""


def test_processor_times_leave_idle_and_iowait_out_of_busy() -> None:
    whole, cores = parse_cpu(STAT, [0, 1, 3])
    assert whole == CpuTimes(busy=150, total=1000)
    assert cores == {0: CpuTimes(90, 500), 3: CpuTimes(60, 500)}


def test_memory_load_network_and_disks_are_read() -> None:
    info = b"MemTotal:  1000 kB\nMemFree: 100 kB\nMemAvailable:  400 kB\n"
    assert parse_memory(info) == Memory(1_024_000, 409_600)
    assert parse_memory(b"MemTotal: 10 kB\nMemFree: 1 kB\n") == Memory(10_240, 1024)
    assert parse_load(b"0.50 1.25 2.00 3/400 1234\n") == (0.5, 1.25, 2.0)
    assert parse_network(NET) == {"eth0": Traffic(1000, 500), "wlan0": Traffic(10, 5)}
    assert parse_disks(DISKS, {"vda"}) == {"vda": Traffic(51_200, 102_400)}
    assert parse_cpu(b"", [0]) == (CpuTimes(0, 0), {})
    assert parse_network(b"") == parse_disks(b"", {"vda"}) == {}


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [
        (CpuTimes(0, 0), CpuTimes(25, 100), 25.0),
        (CpuTimes(5, 10), CpuTimes(5, 10), 0.0),
        (CpuTimes(50, 100), CpuTimes(10, 20), 0.0),
        (CpuTimes(50, 100), CpuTimes(40, 120), 0.0),
    ],
)
def test_busy_time_is_a_share_of_the_time_between(
    before: CpuTimes, after: CpuTimes, percent: float
) -> None:
    assert busy_percent(before, after) == percent


def test_rates_count_growth_of_devices_seen_twice() -> None:
    before = {"a": Traffic(100, 10), "gone": Traffic(9, 9), "reset": Traffic(1000, 1000)}
    after = {"a": Traffic(300, 20), "new": Traffic(10**9, 10**9), "reset": Traffic(1, 1)}
    assert rates(before, after, 2.0) == (100, 5)
    assert rates(before, after, 0.0) == (0, 0)
    assert rates(before, after, -1.0) == (0, 0)


def test_rates_of_a_sampler_are_between_its_samples(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "net").mkdir(parents=True)
    (tmp_path / "block" / "vda" / "device").mkdir(parents=True)
    (tmp_path / "block" / "loop0").mkdir()

    def write(network: bytes, disks: bytes, stat: bytes) -> None:
        (proc / "net" / "dev").write_bytes(network)
        (proc / "diskstats").write_bytes(disks)
        (proc / "stat").write_bytes(stat)

    write(NET, DISKS, STAT)
    sampler = SystemSampler(tmp_path, proc=proc, block=tmp_path / "block")
    first = sampler.sample(100.0, [0])
    assert first["network_rx_bytes_per_sec"] == first["disk_io_read_bytes_per_sec"] == 0
    write(
        NET.replace(b"eth0:1000", b"eth0:4000").replace(b"lo: 999", b"lo: 999999"),
        DISKS.replace(b"20 0 200", b"20 0 400"),
        STAT.replace(b"cpu0 60 0 30 400", b"cpu0 135 0 30 425"),
    )
    second = sampler.sample(130.0, [0])
    assert second["network_rx_bytes_per_sec"] == 100
    assert second["network_tx_bytes_per_sec"] == 0
    assert second["disk_io_write_bytes_per_sec"] == 200 * 512 // 30
    assert second["cpu_core_0_percent"] == 75.0
    assert second["load_avg_1min"] == 0.0


def test_percentiles_are_values_that_occurred() -> None:
    reservoir = Reservoir(size=100)
    assert reservoir.percentiles((0.5, 0.99)) == [0.0, 0.0]
    assert reservoir.mean() == 0.0
    reservoir.add(7.0)
    assert reservoir.percentiles((0.5, 0.95, 0.99)) == [7.0, 7.0, 7.0]
    for value in range(1, 1001):
        reservoir.add(float(value))
    # Only the last hundred are remembered: 901 to 1000.
    assert len(reservoir) == 100
    assert reservoir.percentiles((0.5, 0.95, 0.99, 1.0)) == [950.0, 995.0, 999.0, 1000.0]
    assert reservoir.mean() == 950.5


def test_a_rolling_count_forgets_what_is_older_than_its_span() -> None:
    count = RollingCount(60.0, slots=60)
    for second in range(120):
        count.add(1000.0 + second)
    assert count.total(1119.0) == 60
    assert count.total(1149.0) == 30
    assert count.total(1149.5) == 30
    assert count.total(10_000.0) == 0
    count.add(10_000.5, 3)
    assert count.total(10_000.9) == 3
    # A moment that lies behind counts into the newest slot instead of reviving an old one.
    count.add(9_000.0)
    assert count.total(10_000.9) == 4


def test_task_totals_only_grow_and_those_of_the_suite_start_again() -> None:
    meter = TaskMeter()
    outcomes = ("succeeded", "succeeded", "failed", "cancelled")
    for n, outcome in enumerate(outcomes, 1):
        measure = TaskMeasure(
            outcome=outcome, execution_s=n, cpu_s=0.5, peak_memory_bytes=n * 10, artifacts=1
        )
        meter.record(measure, 10.0)
    facts = meter.facts(10.0)
    assert (facts.completed, facts.succeeded, facts.failed, facts.cancelled) == (4, 2, 1, 1)
    assert (facts.suite_completed, facts.suite_failed) == (4, 1)
    assert (facts.p50_execution_ms, facts.p99_execution_ms) == (2000.0, 4000.0)
    assert (facts.avg_execution_ms, facts.cpu_time_ms, facts.artifacts) == (2500.0, 2000, 4)
    assert facts.peak_memory_bytes == 40
    assert (facts.last_minute, facts.last_hour) == (4, 4)
    meter.begin_suite()
    later = meter.facts(100.0)
    assert (later.completed, later.suite_completed, later.last_minute, later.last_hour) == (
        *(4, 0, 0, 4),
    )


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -1.0])
def test_times_that_cannot_be_are_counted_as_none(odd: float) -> None:
    meter = TaskMeter()
    meter.record(TaskMeasure(outcome="failed", execution_s=odd, cpu_s=odd), 1.0)
    facts = meter.facts(1.0)
    assert (facts.avg_execution_ms, facts.p99_execution_ms, facts.cpu_time_ms) == (0.0, 0.0, 0)


def test_phases_of_an_engagement_are_timed() -> None:
    meter = SuiteMeter(0.0)
    assert meter.facts(5.0).idle_s == 5.0
    suite = uuid4()
    meter.begin(suite, 10.0)
    meter.hook_ended(is_preparation=True, is_ok=True, tries=3)
    meter.enter("executing", 12.0)
    meter.enter("cleaning", 20.0)
    running = meter.facts(20.5)
    assert (running.phase, running.outcome, running.cleanup_ms) == ("cleaning", "running", 500)
    meter.enter("idle", 21.0)
    facts = meter.facts(25.0)
    assert (facts.prep_ms, facts.execution_ms, facts.cleanup_ms) == (2000, 8000, 1000)
    assert (facts.prep_retries, facts.outcome, facts.idle_s) == (2, "success", 4.0)
    meter.begin(suite, 30.0)
    meter.hook_ended(is_preparation=True, is_ok=False, tries=1)
    meter.enter("cleaning", 31.0)
    meter.hook_ended(is_preparation=False, is_ok=False, tries=1)
    meter.enter("idle", 32.0)
    assert meter.facts(32.0).outcome == "prep_failed"
    assert meter.facts(32.0).switches == 1
    meter.begin(uuid4(), 40.0)
    assert meter.facts(40.0).switches == 2


def test_rates_of_ipc_and_crashes_are_between_heartbeats(tmp_path: Path) -> None:
    collector = MetricsCollector(tmp_path, started=0.0, system=SystemSampler(tmp_path))

    def families(now: float, ipc: IpcStats, crashed: int) -> dict[str, dict[str, object]]:
        pool = PoolFacts(crashed=crashed, workers=[WorkerFacts(local_id=0, state="crashed")])
        metrics = collector.sample(now, pool, TaskFacts(), ipc, LeaseFacts())
        assert metrics.active_workers == 0
        return metrics.families  # type: ignore[return-value]

    first = families(100.0, IpcStats(fetches=500, reports=500), 4)
    assert first["ipc"]["fetch_requests_per_sec"] == 0.0
    assert first["worker_pool"]["workers_crashes_per_hour"] == 0.0
    second = families(130.0, IpcStats(fetches=3500, reports=560), 5)
    assert second["ipc"]["fetch_requests_per_sec"] == 100.0
    assert second["ipc"]["report_requests_per_sec"] == 2.0
    assert second["ipc"]["fetch_requests_total"] == 3500
    assert second["worker_pool"]["workers_crashes_per_hour"] == 120.0
    # The IPC server was started anew: a rate is unknown, not negative.
    third = families(160.0, IpcStats(fetches=3), 5)
    assert third["ipc"]["fetch_requests_per_sec"] == 0.0
