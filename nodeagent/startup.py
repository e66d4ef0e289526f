"""The sweep at the start of an agent: nothing of an earlier life may run or lie around.

Kills what is left in our cgroups and what carries our mark, then removes work directories, IPC
files and shared memory. Called once by the agent's shell, in a thread, when the machine lock is
held and before anything is started. Cleanup debts are paid afterwards, by hooks.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
import structlog

from nodeagent.hooks.directories import remove_other_suites
from nodeagent.marker import marker_entry
from nodeagent.strays import kill_marked, remove_cgroup
from nodeagent.worker.workspace import remove_tree

log = structlog.stdlib.get_logger(__name__)

_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where the kernel keeps segments
KILL_WITHIN_S: Final = 2.0
# Shorter ones could be the beginning of somebody else's names.
_MIN_PREFIX: Final = 8


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where an earlier life may have left something."""

    data_dir: Path
    marker: str  # marker.marker_value(...)
    cgroups: Sequence[Path] = ()  # roots of this instance's own subtrees, one per hierarchy
    ipc_prefix: str = ""  # of segments in shared memory
    owed_suites: Collection[UUID] = ()  # their directories are needed by cleanup


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """For the log: what was found. `survivors` would not die: the host is not clean."""

    cgroups: int = 0
    processes: int = 0
    survivors: int = 0
    work_dirs: int = 0
    ipc_files: int = 0
    segments: int = 0
    suites: int = 0
    seconds: float = 0.0


def sweep(plan: SweepPlan) -> SweepReport:
    """Raises nothing for what cannot be removed: it says so in the log and goes on."""
    started = time.monotonic()
    deadline = started + KILL_WITHIN_S
    groups = [remove_cgroup(root, deadline=deadline) for root in plan.cgroups]
    killed, marked_left = kill_marked(marker_entry(plan.marker), deadline=deadline)
    report = SweepReport(
        cgroups=sum(removed for removed, _ in groups),
        processes=killed,
        survivors=marked_left + sum(left for _, left in groups),
        work_dirs=_empty(plan.data_dir / "workers"),
        ipc_files=_empty(plan.data_dir / "ipc"),
        segments=_remove_segments(plan.ipc_prefix),
        suites=remove_other_suites(plan.data_dir, plan.owed_suites),
        seconds=round(time.monotonic() - started, 3),
    )
    log.info("startup.swept", **msgspec.structs.asdict(report))
    return report


def _empty(folder: Path) -> int:
    """Remove everything in `folder`, never through a link."""
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            folder.unlink()
            return 1
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return 0
    except OSError as error:
        log.warning("startup.not_removed", path=str(folder), error=str(error))
        return 0
    return sum(_attempt(remove_tree, Path(entry.path)) for entry in entries)


def _remove_segments(prefix: str) -> int:
    if len(prefix) < _MIN_PREFIX:
        return 0
    entries = [entry for entry in os.scandir(_SHARED_MEMORY) if entry.name.startswith(prefix)]
    return sum(_attempt(_remove_own, Path(entry.path)) for entry in entries)


def _remove_own(path: Path) -> None:
    # The directory is everybody's: a name like ours may have been made by somebody else.
    if path.lstat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to somebody else", str(path))
    remove_tree(path)


def _attempt(remove: Callable[[Path], None], path: Path) -> bool:
    try:
        remove(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        log.warning("startup.not_removed", path=str(path), error=str(error))
        return False
    return True
