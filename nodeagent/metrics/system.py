"""The host's load from /proc: processors, memory, disk, network. Rates are between two samples.

Used by collect, which calls it once per heartbeat. Half a millisecond, no child process.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from mitosis_protocol.manager_reports import Facts
from nodeagent.disk import disk_room
from nodeagent.errors import HostUnusable
from nodeagent.metrics.proc import (
    CpuTimes,
    Traffic,
    parse_cpu,
    parse_disks,
    parse_load,
    parse_memory,
    parse_network,
    physical_disks,
    read,
)

# Facts hold 256 members; more cores than this are shown by the machine's average alone.
MAX_CORES_SHOWN = 128

K = TypeVar("K")


class _Reading(msgspec.Struct, frozen=True):
    """What rates are made from."""

    at: float
    cpu: CpuTimes
    cores: Mapping[int, CpuTimes]
    disks: Mapping[str, Traffic]
    network: Mapping[str, Traffic]


class SystemSampler:
    """Remembers the last reading."""

    def __init__(
        self, data_dir: Path, *, proc: Path = Path("/proc"), block: Path = Path("/sys/block")
    ) -> None:
        self._data_dir = data_dir
        self._proc = proc
        self._disks = physical_disks(block)
        self._last: _Reading | None = None

    def sample(self, now: float, cores: Collection[int] = ()) -> Facts:
        """Rates of the first sample are zero: there is nothing to compare it with."""
        shown = sorted(set(cores))[:MAX_CORES_SHOWN]
        reading = self._read(now, shown)
        last = self._last or reading
        self._last = reading
        seconds = reading.at - last.at
        disk_in, disk_out = rates(last.disks, reading.disks, seconds)
        net_in, net_out = rates(last.network, reading.network, seconds)
        facts: Facts = {
            "cpu_usage_percent": busy_percent(last.cpu, reading.cpu),
            "cpu_cores_allocated": ",".join(str(core) for core in sorted(set(cores))),
            **self._memory(),
            **self._disk(),
            "disk_io_read_bytes_per_sec": disk_in,
            "disk_io_write_bytes_per_sec": disk_out,
            "network_rx_bytes_per_sec": net_in,
            "network_tx_bytes_per_sec": net_out,
            **self._load(),
        }
        for core, times in reading.cores.items():
            before = last.cores.get(core, times)
            facts[f"cpu_core_{core}_percent"] = busy_percent(before, times)
        return facts

    def _read(self, now: float, cores: Collection[int]) -> _Reading:
        whole, single = parse_cpu(read(self._proc / "stat"), cores)
        return _Reading(
            at=now,
            cpu=whole,
            cores=single,
            disks=parse_disks(read(self._proc / "diskstats"), self._disks),
            # `net` is a link to the reader's own namespace, which is what we want.
            network=parse_network(read(self._proc / "net" / "dev")),
        )

    def _memory(self) -> Facts:
        memory = parse_memory(read(self._proc / "meminfo"))
        return {
            "memory_total_bytes": memory.total,
            "memory_used_bytes": max(0, memory.total - memory.available),
            "memory_available_bytes": memory.available,
        }

    def _disk(self) -> Facts:
        try:
            room = disk_room(self._data_dir)
        except HostUnusable as error:
            return {"disk_state": "full", "disk_trouble": str(error)}
        return {
            "disk_total_bytes": room.total_bytes,
            "disk_used_bytes": max(0, room.total_bytes - room.free_bytes),
            "disk_state": room.state.value,
        }

    def _load(self) -> Facts:
        text = read(self._proc / "loadavg")
        one, five, fifteen = parse_load(text) if text else (0.0, 0.0, 0.0)
        return {"load_avg_1min": one, "load_avg_5min": five, "load_avg_15min": fifteen}


def busy_percent(before: CpuTimes, after: CpuTimes) -> float:
    """Of the time between; 0 when none passed or a core was taken away and counts anew."""
    total = after.total - before.total
    busy = after.busy - before.busy
    if total <= 0 or busy < 0:
        return 0.0
    return round(min(100.0, 100.0 * busy / total), 2)


def rates(
    before: Mapping[str, Traffic], after: Mapping[str, Traffic], seconds: float
) -> tuple[int, int]:
    """Bytes a second over the devices present in both; one that counts anew counts for nothing."""
    if seconds <= 0:
        return 0, 0
    incoming = outgoing = 0
    for name, now in after.items():
        was = before.get(name, now)
        incoming += max(0, now.incoming - was.incoming)
        outgoing += max(0, now.outgoing - was.outgoing)
    return int(incoming / seconds), int(outgoing / seconds)
