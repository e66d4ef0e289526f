"""One slot's cgroups during its attempts: limits before, evidence after, nobody left between.

Used by the slot of a managed worker. The launcher lives in the groups, so a command is born in
them; a group that still holds much of the last attempt (page cache) is replaced by a fresh one,
because its peak would otherwise be the next attempt's.
"""

import contextlib
import os
import signal
from pathlib import Path
from typing import Protocol

import msgspec

from mitosis_protocol.suites import ResourceLimits
from nodeagent.errors import HostUnusable, LimitsUnenforceable
from nodeagent.pool.cgroup_files import PROCS, ControlFile, empty_group, kill_group, write_once
from nodeagent.pool.cgroup_v1 import CpuV1, MemoryV1
from nodeagent.pool.cgroup_v2 import CpuV2, MemoryV2, Pids
from nodeagent.pool.slots import UNKILLABLE_AFTER_S, GroupDir, SlotGroups

# What a launcher itself and a small command leave behind stays below this.
_CARRIED_BYTES = 4 << 20
NO_LIMITS = ResourceLimits()


class Memory(Protocol):
    """What both versions can do."""

    @property
    def proves_kills(self) -> bool: ...
    def set_limit(self, limit: int | None) -> None: ...
    def reset_peak(self) -> bool: ...
    def peak(self) -> int | None: ...
    def usage(self) -> int: ...
    def kills(self) -> int: ...
    def close(self) -> None: ...


class Evidence(msgspec.Struct, frozen=True):
    """What the groups counted during one attempt."""

    was_oom: bool = False
    peak_memory_bytes: int | None = None
    peak_pids: int | None = None


class AttemptGroup:
    """The groups of one slot. Made by the worker, which is not in them."""

    def __init__(self, slot: SlotGroups) -> None:
        self._groups = {name: group for group in slot.groups for name in group.controllers}
        self._track = _tracking_group(slot.groups)
        self._entered = [group for group in slot.groups if not _is_on_demand(group)]
        self._current = {group.path: Path(group.path) for group in slot.groups}
        self._recycled = 0
        self._is_dirty = False
        self._memory: Memory | None = None
        self._pids: Pids | None = None
        self._cpu: CpuV1 | CpuV2 | None = None
        self._members: ControlFile | None = None
        self._open_files()
        self._applied: ResourceLimits | None = None  # None: unknown, to be written anew
        # Taken at the end of an attempt for the next one: nobody but the launcher is there between.
        self._has_bases = False
        self._base_kills = self._base_pids = 0

    def directories(self) -> tuple[str, ...]:
        """Those a launcher has to enter."""
        return tuple(str(self._current[group.path]) for group in self._entered)

    def check(self, limits: ResourceLimits) -> None:
        """Raises LimitsUnenforceable for a limit that nothing here can enforce."""
        for name, wanted in (
            ("memory", limits.memory),
            ("pids", limits.pids),
            ("cpu", limits.cpus),
        ):
            if wanted is not None and name not in self._groups:
                raise LimitsUnenforceable(f"a limit of {name} was asked for, and no cgroup has it")

    def begin(self, limits: ResourceLimits, launcher_pid: int) -> None:
        """Put the limits of the next attempt into force. Raises LimitsUnenforceable."""
        self.check(limits)
        if self._memory is not None and self._is_dirty:
            self._recycle(self._groups["memory"], launcher_pid)
        if limits.cpus is not None:
            self._enter_on_demand("cpu", launcher_pid)
        if limits != self._applied:
            self._applied = None
            self._apply(limits)
            self._applied = limits
        if not self._has_bases:
            self._take_bases()

    def finish(self, status: int) -> Evidence:
        """What was counted since `begin`."""
        peak = pids = None
        was_oom = False
        if self._memory is not None:
            peak = self._memory.peak()
            kills = self._memory.kills()
            was_oom = kills > self._base_kills and (
                self._memory.proves_kills or os.WTERMSIG(status) == signal.SIGKILL
            )
            self._base_kills = kills
            can_reset = self._memory.reset_peak()
            # What never was much cannot have left much.
            self._is_dirty = (peak is None or peak > _CARRIED_BYTES) and (
                not can_reset or self._memory.usage() > _CARRIED_BYTES
            )
        if self._pids is not None:
            # Nothing resets this one: a lower peak than an earlier attempt's stays unknown.
            highest = self._pids.peak() or 0
            pids = highest if highest > self._base_pids else None
            self._base_pids = max(highest, self._base_pids)
        return Evidence(was_oom, peak, pids)

    def _take_bases(self) -> None:
        self._has_bases = True
        if self._memory is not None:
            self._memory.reset_peak()
            self._base_kills = self._memory.kills()
        if self._pids is not None:
            self._base_pids = self._pids.peak() or 0

    def leftovers(self, launcher_pid: int) -> int:
        """How many processes are there beside the launcher."""
        if self._members is None:
            return 0
        listed = self._members.read()
        if listed == b"%d\n" % launcher_pid:
            return 0  # the usual case
        return len({int(pid) for pid in listed.split()} - {launcher_pid})

    def end_leftovers(self, launcher_pid: int) -> int:
        """Kill all but the launcher; how many would not die."""
        self._forget()
        if self._track is None:
            return 0
        return empty_group(self._tracked, within_s=UNKILLABLE_AFTER_S, spared={launcher_pid})

    def kill(self) -> None:
        """Everybody, the launcher included; does not wait."""
        self._forget()
        if self._track is not None:
            kill_group(self._tracked)

    def empty(self) -> int:
        """Kill everybody and wait for it; how many would not die."""
        self._forget()
        if self._track is None:
            return 0
        return empty_group(self._tracked, within_s=UNKILLABLE_AFTER_S)

    def close(self) -> None:
        for file in (self._memory, self._pids, self._cpu, self._members):
            if file is not None:
                file.close()
        self._memory = self._pids = self._cpu = self._members = None

    def _forget(self) -> None:
        """Killing may have changed limits, and a new launcher leaves its own traces."""
        self._applied = None
        self._has_bases = False

    @property
    def _tracked(self) -> Path:
        assert self._track is not None
        return self._current[self._track.path]

    def _open_files(self) -> None:
        self._is_dirty = False
        self._memory = _open_memory(self._find("memory"))
        self._pids = _open_pids(self._find("pids"))
        self._cpu = _open_cpu(self._find("cpu"))
        if self._track is not None:
            self._members = ControlFile(self._tracked / PROCS)

    def _find(self, controller: str) -> tuple[Path, int] | None:
        group = self._groups.get(controller)
        return (self._current[group.path], group.version) if group is not None else None

    def _apply(self, limits: ResourceLimits) -> None:
        if self._memory is not None:
            self._memory.set_limit(limits.memory)
        if self._pids is not None:
            self._pids.set_limit(limits.pids)
        if self._cpu is not None:
            self._cpu.set_limit(limits.cpus)

    def _enter_on_demand(self, controller: str, launcher_pid: int) -> None:
        group = self._groups[controller]
        if group not in self._entered:
            self._entered.append(group)
            if launcher_pid:
                with contextlib.suppress(ProcessLookupError):
                    write_once(self._current[group.path] / PROCS, str(launcher_pid))

    def _recycle(self, group: GroupDir, launcher_pid: int) -> None:
        """A fresh group in this hierarchy; only the launcher is in the old one."""
        old = self._current[group.path]
        self._recycled += 1
        fresh = Path(f"{group.path}.{self._recycled}")
        try:
            fresh.mkdir(exist_ok=True)
            if "cpuset" in group.controllers:
                for file in ("cpuset.mems", "cpuset.cpus"):
                    write_once(fresh / file, (old / file).read_text().strip() or "\n")
            if launcher_pid:
                # A launcher that has just died is replaced by one that enters by itself.
                with contextlib.suppress(ProcessLookupError):
                    write_once(fresh / PROCS, str(launcher_pid))
        except OSError as error:
            raise HostUnusable(f"a cgroup cannot be replaced: {error}") from error
        self.close()
        self._current[group.path] = fresh
        self._open_files()
        self._forget()
        # What cannot go now goes with the slot.
        with contextlib.suppress(OSError):
            old.rmdir()


def _tracking_group(groups: tuple[GroupDir, ...]) -> GroupDir | None:
    """Version 2 can kill a whole group at once; else the one that can stop forks."""
    for group in groups:
        if group.version == 2:
            return group
    by_use = sorted(groups, key=lambda group: "pids" not in group.controllers)
    return next((group for group in by_use if not _is_on_demand(group)), None)


def _is_on_demand(group: GroupDir) -> bool:
    """Being in a `cpu` group costs a share of the processor and every context switch a little."""
    return group.version == 1 and group.controllers == ("cpu",)


def _open_memory(place: tuple[Path, int] | None) -> Memory | None:
    if place is None:
        return None
    return MemoryV2(place[0]) if place[1] == 2 else MemoryV1(place[0])


def _open_pids(place: tuple[Path, int] | None) -> Pids | None:
    return Pids(place[0]) if place is not None else None


def _open_cpu(place: tuple[Path, int] | None) -> CpuV1 | CpuV2 | None:
    if place is None:
        return None
    return CpuV2(place[0]) if place[1] == 2 else CpuV1(place[0])
