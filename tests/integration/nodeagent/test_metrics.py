"""The six families on a real host: plausible, cheap, and right about rates."""

import math
import os
import socket
import threading
import time
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from mitosis_protocol.enums import ManagerState
from mitosis_protocol.from_manager import FROM_MANAGER, Heartbeat, ManagerMetrics
from nodeagent.ipc.server import IpcStats
from nodeagent.metrics.collect import MetricsCollector
from nodeagent.metrics.facts import LeaseFacts, PoolFacts, SuiteFacts, TaskFacts, WorkerFacts
from nodeagent.metrics.system import SystemSampler
from nodeagent.metrics.task_meter import TaskMeasure, TaskMeter

FAMILIES = {"system", "worker_pool", "tasks", "suite", "ipc", "lease"}
HEARTBEAT_S = 30.0


def full_pool(workers: int = 256) -> PoolFacts:
    return PoolFacts(
        spawned=workers + 3,
        crashed=3,
        workers=[
            WorkerFacts(local_id=n, state="executing", attempt_id=10**12 + n, tasks_completed=n)
            for n in range(workers)
        ],
        cores=sorted(os.sched_getaffinity(0)),
    )


def busy_meter(now: float) -> TaskMeter:
    meter = TaskMeter()
    for n in range(3000):
        meter.record(TaskMeasure(outcome="succeeded", execution_s=n / 1000), now)
    return meter


def sample(collector: MetricsCollector, meter: TaskMeter, now: float) -> ManagerMetrics:
    lease = LeaseFacts(assignment_id=1, suite_uuid=uuid4(), remaining_s=90)
    suite = SuiteFacts(suite_uuid=uuid4(), phase="executing", outcome="running")
    return collector.sample(now, full_pool(), meter.facts(now), IpcStats(), lease, suite)


def test_a_sample_has_six_flat_families_and_fits_a_heartbeat(tmp_path: Path) -> None:
    now = time.monotonic()
    metrics = sample(MetricsCollector(tmp_path, started=now - 10), busy_meter(now), now)
    assert set(metrics.families) == FAMILIES
    assert (metrics.active_workers, metrics.uptime_seconds) == (256, 10)
    assert metrics.total_tasks_completed == 3000
    beat = Heartbeat(manager_uuid=uuid4(), state=ManagerState.EXECUTING, metrics=metrics)
    frame = FROM_MANAGER.encode(beat)
    assert FROM_MANAGER.decode(frame) == beat
    assert len(frame) < 64 * 1024
    for name, family in metrics.families.items():
        assert len(family) <= 256, name
        numbers = [value for value in family.values() if isinstance(value, float)]
        assert all(math.isfinite(number) for number in numbers), name


def test_a_sample_costs_less_than_a_percent_of_a_core(tmp_path: Path) -> None:
    collector = MetricsCollector(tmp_path, started=0.0)
    meter = busy_meter(time.monotonic())
    rounds = 30
    started = time.process_time()
    for _ in range(rounds):
        sample(collector, meter, time.monotonic())
    cpu_s = (time.process_time() - started) / rounds
    print(f"{cpu_s * 1000:.2f} ms of processor time per sample")
    assert cpu_s < 0.01 * HEARTBEAT_S / 10  # a tenth of what is allowed


def test_the_host_is_described_as_it_is(tmp_path: Path) -> None:
    facts = SystemSampler(tmp_path).sample(time.monotonic(), os.sched_getaffinity(0))
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert facts["memory_total_bytes"] == pytest.approx(total, rel=0.05)
    assert 0 < facts["memory_used_bytes"] < facts["memory_total_bytes"]  # type: ignore[operator]
    disk = os.statvfs(tmp_path)
    assert facts["disk_total_bytes"] == disk.f_blocks * disk.f_frsize
    assert facts["load_avg_1min"] == pytest.approx(os.getloadavg()[0], abs=2)
    for core in os.sched_getaffinity(0):
        assert f"cpu_core_{core}_percent" in facts
    assert facts["cpu_cores_allocated"] == ",".join(map(str, sorted(os.sched_getaffinity(0))))


def test_a_busy_core_shows_as_busy(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    sampler = SystemSampler(tmp_path)
    stop = threading.Event()

    def burn() -> None:
        os.sched_setaffinity(0, {core})
        while not stop.is_set():
            pass

    sampler.sample(time.monotonic(), [core])
    thread = threading.Thread(target=burn)
    thread.start()
    try:
        time.sleep(0.6)
        facts = sampler.sample(time.monotonic(), [core])
    finally:
        stop.set()
        thread.join()
    assert facts[f"cpu_core_{core}_percent"] > 80  # type: ignore[operator]
    assert facts["cpu_usage_percent"] >= facts[f"cpu_core_{core}_percent"] / (  # type: ignore[operator]
        2 * (os.cpu_count() or 1)
    )


def test_loopback_is_no_network_traffic(tmp_path: Path) -> None:
    """32 MiB over loopback in well under a second would show as dozens of MiB a second."""
    sampler = SystemSampler(tmp_path)
    sampler.sample(time.monotonic())
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    peer, _ = server.accept()
    with server, client, peer:
        block = bytes(1 << 20)
        sent = threading.Thread(target=lambda: [client.sendall(block) for _ in range(32)])
        sent.start()
        received = 0
        while received < 32 << 20:
            received += len(peer.recv(1 << 20))
        sent.join()
    facts = sampler.sample(time.monotonic())
    assert facts["network_rx_bytes_per_sec"] < 8 << 20  # type: ignore[operator]


def test_metrics_are_plain_values(tmp_path: Path) -> None:
    metrics = MetricsCollector(tmp_path, started=0.0).sample(
        1.0, PoolFacts(), TaskFacts(), IpcStats(), LeaseFacts()
    )
    assert msgspec.json.decode(msgspec.json.encode(metrics), type=ManagerMetrics) == metrics
