"""Limits and figures of cgroup version 1, one class per controller.

Each is opened on one group's directory by attempt_group. Errors of the kernel become
LimitsUnenforceable when a limit was asked for.
"""

import os
from pathlib import Path

from nodeagent.pool.cgroup_files import ControlFile, field, write_limit

_UNLIMITED = -1
_PERIOD_US = 100_000
_MAX_PERIOD_US = 1_000_000
_MIN_QUOTA_US = 1_000  # the kernel's


class MemoryV1:
    """`memory`. Swap counts as memory where the kernel can account for it."""

    def __init__(self, group: Path) -> None:
        self._limit = ControlFile(group / "memory.limit_in_bytes", os.O_RDWR)
        with_swap = group / "memory.memsw.limit_in_bytes"
        self._limit_with_swap = ControlFile(with_swap, os.O_WRONLY) if with_swap.exists() else None
        self._peak = ControlFile(group / "memory.max_usage_in_bytes", os.O_RDWR)
        self._usage = ControlFile(group / "memory.usage_in_bytes")
        self._oom = ControlFile(group / "memory.oom_control")
        self._failures = ControlFile(group / "memory.failcnt")
        # Since Linux 4.13 the kernel counts its kills; before, only that the limit was reached.
        self.proves_kills = field(self._oom.read(), b"oom_kill") is not None

    def set_limit(self, limit: int | None) -> None:
        text = str(_UNLIMITED if limit is None else limit)
        files = [(self._limit, "memory limit")]
        if self._limit_with_swap is not None:
            files.append((self._limit_with_swap, "limit of memory and swap"))
        # The one with swap may never be the smaller one.
        if limit is None or limit > int(self._limit.read()):
            files.reverse()
        for file, what in files:
            write_limit(file, text, what)

    def reset_peak(self) -> bool:
        self._peak.write("0")
        return True

    def peak(self) -> int | None:
        return int(self._peak.read())

    def usage(self) -> int:
        return int(self._usage.read())

    def kills(self) -> int:
        if self.proves_kills:
            return field(self._oom.read(), b"oom_kill") or 0
        return int(self._failures.read())

    def close(self) -> None:
        for file in (self._limit, self._peak, self._usage, self._oom, self._failures):
            file.close()
        if self._limit_with_swap is not None:
            self._limit_with_swap.close()


class CpuV1:
    """`cpu`: so many microseconds of every period."""

    def __init__(self, group: Path) -> None:
        self._quota = ControlFile(group / "cpu.cfs_quota_us", os.O_WRONLY)
        self._period = ControlFile(group / "cpu.cfs_period_us", os.O_WRONLY)

    def set_limit(self, cpus: float | None) -> None:
        # Without a quota any period is allowed; with one, a step in between might not be.
        write_limit(self._quota, str(_UNLIMITED), "cpu limit")
        if cpus is None:
            return
        quota, period = quota_of(cpus)
        write_limit(self._period, str(period), "cpu limit")
        write_limit(self._quota, str(quota), "cpu limit")

    def close(self) -> None:
        self._quota.close()
        self._period.close()


def quota_of(cpus: float) -> tuple[int, int]:
    """Quota and period in microseconds; a longer period for shares the kernel finds too small."""
    period = _PERIOD_US if cpus * _PERIOD_US >= _MIN_QUOTA_US else _MAX_PERIOD_US
    return max(_MIN_QUOTA_US, round(cpus * period)), period
