"""Reading /proc: texts of the kernel into numbers. Pure but for the readers at the end.

Used by system. Every parser takes the bytes of one file and ignores lines it does not know.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

SECTOR_BYTES: Final = 512  # the unit of /proc/diskstats, whatever the disk's own
_KIB: Final = 1024
_NET_HEADER_LINES: Final = 2
_NET_TX_COLUMN: Final = 8


class CpuTimes(NamedTuple):
    """Ticks since boot of one core or all of them."""

    busy: int
    total: int


class Memory(NamedTuple):
    total: int
    available: int


class Traffic(NamedTuple):
    """Bytes since boot of one device: received or read, sent or written."""

    incoming: int
    outgoing: int


def parse_cpu(stat: bytes, cores: Collection[int]) -> tuple[CpuTimes, dict[int, CpuTimes]]:
    """The whole machine, and those of `cores` that are there (a core may be offline)."""
    wanted = {b"cpu%d" % core: core for core in cores}
    whole = CpuTimes(0, 0)
    single: dict[int, CpuTimes] = {}
    for line in stat.splitlines():
        if not line.startswith(b"cpu"):
            break
        name, *fields = line.split()
        if name == b"cpu":
            whole = _cpu_times(fields)
        elif name in wanted:
            single[wanted[name]] = _cpu_times(fields)
    return whole, single


def _cpu_times(fields: list[bytes]) -> CpuTimes:
    # user nice system idle iowait irq softirq steal; guest times are part of user already.
    ticks = [int(field) for field in fields[:8]]
    idle = sum(ticks[3:5])
    return CpuTimes(sum(ticks) - idle, sum(ticks))


def parse_memory(meminfo: bytes) -> Memory:
    """Bytes. Kernels before 3.14 have no MemAvailable; free memory is the nearest to it."""
    values: dict[bytes, int] = {}
    for line in meminfo.splitlines():
        name, _, rest = line.partition(b":")
        if name in (b"MemTotal", b"MemFree", b"MemAvailable"):
            values[name] = int(rest.split()[0]) * _KIB
    available = values.get(b"MemAvailable", values.get(b"MemFree", 0))
    return Memory(values.get(b"MemTotal", 0), available)


def parse_load(loadavg: bytes) -> tuple[float, float, float]:
    one, five, fifteen = (float(field) for field in loadavg.split()[:3])
    return one, five, fifteen


def parse_network(net_dev: bytes) -> dict[str, Traffic]:
    """Per interface, without loopback."""
    found: dict[str, Traffic] = {}
    for line in net_dev.splitlines()[_NET_HEADER_LINES:]:
        name, _, rest = line.partition(b":")
        fields = rest.split()
        interface = name.strip().decode(errors="replace")
        if interface != "lo" and len(fields) > _NET_TX_COLUMN:
            found[interface] = Traffic(int(fields[0]), int(fields[_NET_TX_COLUMN]))
    return found


def parse_disks(diskstats: bytes, disks: Collection[str]) -> dict[str, Traffic]:
    """Per whole physical disk; partitions and mapped devices would count twice."""
    found: dict[str, Traffic] = {}
    for line in diskstats.splitlines():
        fields = line.split()
        name = fields[2].decode(errors="replace")
        if name in disks:
            found[name] = Traffic(int(fields[5]) * SECTOR_BYTES, int(fields[9]) * SECTOR_BYTES)
    return found


def physical_disks(block: Path) -> set[str]:
    """Names below /sys/block that have hardware behind them, virtual hardware included."""
    try:
        return {entry.name for entry in block.iterdir() if (entry / "device").exists()}
    except OSError:
        return set()


def read(path: Path) -> bytes:
    """The whole file, or nothing where the kernel does not show it (containers hide some)."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
