"""Files of the cgroup file systems, whatever the version: reading, writing, members, killing.

Knows nothing about limits (cgroup_v1, cgroup_v2) nor about slots. A process is only signalled
through a descriptor that is known to belong to a member, because pids are reused.
"""

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

from nodeagent.errors import LimitsUnenforceable

_READ_BYTES = 1 << 12  # more than any of these files but a crowded list of members
_POLL_S = 0.002
PROCS = "cgroup.procs"


class ControlFile:
    """A file that is read or written again and again: opened once (a read costs 2 us)."""

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self.path = path
        self._fd = os.open(path, flags | os.O_CLOEXEC)

    def read(self) -> bytes:
        return os.pread(self._fd, _READ_BYTES, 0)

    def write(self, text: str) -> None:
        os.pwrite(self._fd, text.encode(), 0)

    def close(self) -> None:
        os.close(self._fd)


def write_limit(file: ControlFile, text: str, what: str) -> None:
    """Raises LimitsUnenforceable with the kernel's reason."""
    try:
        file.write(text)
    except OSError as error:
        raise LimitsUnenforceable(f"{what} cannot be set: {error.strerror}") from error


def write_once(path: Path, text: str) -> None:
    """For files touched rarely; no newline, no truncation: neither means anything here."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def field(text: bytes, name: bytes) -> int | None:
    """The number after `name` in a file of lines `name number`."""
    for line in text.splitlines():
        key, _, value = line.partition(b" ")
        if key == name:
            return int(value)
    return None


def members(directory: Path) -> set[int]:
    """Processes in this one group; none if the group is gone."""
    try:
        return {int(pid) for pid in (directory / PROCS).read_bytes().split()}
    except OSError:
        return set()


def groups_below(directory: Path) -> list[Path]:
    """This group and all below it, the deepest first."""
    return [Path(path) for path, _, _ in os.walk(directory, topdown=False)]


def kill_group(directory: Path, *, spared: Collection[int] = ()) -> None:
    """One round of SIGKILL for every member of the group and of the groups below it."""
    if not spared and _kill_at_once(directory):
        return
    for group in groups_below(directory):
        _kill_members(group, spared)


def empty_group(directory: Path, *, within_s: float, spared: Collection[int] = ()) -> int:
    """Kill until nobody but `spared` is left; how many would not die in time."""
    deadline = time.monotonic() + within_s
    while True:
        left = {pid for group in groups_below(directory) for pid in members(group)} - set(spared)
        if not left or time.monotonic() > deadline:
            return len(left)
        kill_group(directory, spared=spared)
        time.sleep(_POLL_S)


def remove_group(directory: Path) -> None:
    """The group and all below it. Raises OSError if somebody is still in there."""
    for group in groups_below(directory):
        with contextlib.suppress(FileNotFoundError):
            group.rmdir()


def _kill_at_once(directory: Path) -> bool:
    try:
        write_once(directory / "cgroup.kill", "1")
    except OSError:
        # Version 1, or a kernel before 5.14.
        return False
    return True


def _kill_members(group: Path, spared: Collection[int]) -> None:
    # Without new processes the rounds come to an end, even against a fork bomb.
    with contextlib.suppress(OSError):
        write_once(group / "pids.max", "0")
    handles: dict[int, int] = {}
    try:
        for pid in members(group) - set(spared):
            with contextlib.suppress(ProcessLookupError):
                handles[pid] = os.pidfd_open(pid)
        still_there = members(group)
        for pid, handle in handles.items():
            if pid in still_there:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        for handle in handles.values():
            os.close(handle)
