"""Limits and figures of cgroup version 2, one class per controller.

Each is opened on one group's directory by attempt_group. A bare version 2 tree without any
controller is still good for knowing and killing the members of a slot.
"""

import os
from pathlib import Path

from nodeagent.pool.cgroup_files import ControlFile, field, write_limit
from nodeagent.pool.cgroup_v1 import quota_of

_UNLIMITED = "max"


class MemoryV2:
    """`memory`. Swap is off for a command with a limit: it is what it may use, not less RAM."""

    proves_kills = True

    def __init__(self, group: Path) -> None:
        self._limit = ControlFile(group / "memory.max", os.O_WRONLY)
        swap = group / "memory.swap.max"
        self._swap = ControlFile(swap, os.O_WRONLY) if swap.exists() else None
        self._usage = ControlFile(group / "memory.current")
        self._events = ControlFile(group / "memory.events")
        self._peak, self._can_reset = _open_peak(group / "memory.peak")

    def set_limit(self, limit: int | None) -> None:
        write_limit(self._limit, _UNLIMITED if limit is None else str(limit), "memory limit")
        if self._swap is not None:
            write_limit(self._swap, _UNLIMITED if limit is None else "0", "swap limit")

    def reset_peak(self) -> bool:
        """False before Linux 6.12: then only a new group starts from nothing."""
        if self._peak is not None and self._can_reset:
            self._peak.write("reset")
        return self._can_reset

    def peak(self) -> int | None:
        return int(self._peak.read()) if self._peak is not None else None

    def usage(self) -> int:
        return int(self._usage.read())

    def kills(self) -> int:
        return field(self._events.read(), b"oom_kill") or 0

    def close(self) -> None:
        for file in (self._limit, self._swap, self._usage, self._events, self._peak):
            if file is not None:
                file.close()


class CpuV2:
    """`cpu`."""

    def __init__(self, group: Path) -> None:
        self._limit = ControlFile(group / "cpu.max", os.O_WRONLY)

    def set_limit(self, cpus: float | None) -> None:
        text = _UNLIMITED if cpus is None else "{} {}".format(*quota_of(cpus))
        write_limit(self._limit, text, "cpu limit")

    def close(self) -> None:
        self._limit.close()


class Pids:
    """`pids`, which is the same in both versions. The launcher is not counted."""

    def __init__(self, group: Path) -> None:
        self._limit = ControlFile(group / "pids.max", os.O_WRONLY)
        peak = group / "pids.peak"
        self._peak = ControlFile(peak) if peak.exists() else None

    def set_limit(self, limit: int | None) -> None:
        text = _UNLIMITED if limit is None else str(limit + 1)
        write_limit(self._limit, text, "limit of processes")

    def peak(self) -> int | None:
        """Since the group exists; nothing resets it."""
        return int(self._peak.read()) - 1 if self._peak is not None else None

    def close(self) -> None:
        self._limit.close()
        if self._peak is not None:
            self._peak.close()


def _open_peak(path: Path) -> tuple[ControlFile | None, bool]:
    try:
        file = ControlFile(path, os.O_RDWR)
    except FileNotFoundError:
        return None, False
    except OSError:
        return ControlFile(path), False
    try:
        file.write("reset")
    except OSError:
        return file, False
    return file, True
