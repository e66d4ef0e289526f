"""Whether the work directory's disk has room for more work. Asked by the agent's shell.

`low` is shown to the operator; `full` means that results could not be kept: no task is started.
"""

import os
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from mitosis_protocol.limits import GIB, MIB
from nodeagent.errors import HostUnusable

# Results, logs and a debt need a few MiB even when nothing more is started.
FULL_BELOW_BYTES: Final = 16 * MIB
# A twentieth of the disk, but not more than a task usually needs for its files.
LOW_BELOW_BYTES: Final = 1 * GIB
LOW_BELOW_SHARE: Final = 0.05


class DiskState(StrEnum):
    OK = "ok"
    LOW = "low"
    FULL = "full"


class DiskRoom(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a file system."""

    state: DiskState
    total_bytes: int
    free_bytes: int
    reason: str = ""  # for draining; empty while all is well


def disk_state(path: Path, *, low_below: int | None = None) -> DiskState:
    """`disk_room` without the figures."""
    return disk_room(path, low_below=low_below).state


def disk_room(path: Path, *, low_below: int | None = None) -> DiskRoom:
    """Room for us on the disk of `path`, or of its nearest existing parent.

    Raises HostUnusable when the file system cannot be asked.
    """
    info = _statvfs(path)
    total = info.f_blocks * info.f_frsize
    free = info.f_bavail * info.f_frsize
    floor = min(LOW_BELOW_BYTES, int(total * LOW_BELOW_SHARE)) if low_below is None else low_below
    state, reason = DiskState.OK, ""
    if info.f_flag & os.ST_RDONLY:
        state, reason = DiskState.FULL, "the disk of the work directory is read-only"
    elif free < FULL_BELOW_BYTES:
        state, reason = DiskState.FULL, f"disk full: {free // MIB} MiB left"
    elif info.f_files and not info.f_favail:
        state, reason = DiskState.FULL, "disk full: no inode left"
    elif free < floor:
        state, reason = DiskState.LOW, f"disk low: {free // MIB} of {total // MIB} MiB left"
    return DiskRoom(state=state, total_bytes=total, free_bytes=free, reason=reason)


def _statvfs(path: Path) -> os.statvfs_result:
    for place in (path, *path.parents):
        try:
            return os.statvfs(place)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise HostUnusable(f"the disk of {path} cannot be read: {error.strerror}") from error
    raise HostUnusable(f"{path} has no file system")
