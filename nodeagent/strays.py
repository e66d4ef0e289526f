"""Finding and killing what an earlier life of the agent left running: by cgroup and by mark.

A process id may be given to somebody else between finding and killing it, so each is pinned by a
descriptor and looked at again before the signal. Called by startup. Blocks.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import structlog

log = structlog.stdlib.get_logger(__name__)

_PAUSE_S = 0.005
_PROC = Path("/proc")


def kill_marked(entry: bytes, *, deadline: float) -> tuple[int, int]:
    """Kill every process started with this `NAME=value`; how many, and how many remain.

    Never this process nor one above it: an agent may itself run inside a task.
    """
    spared = _lineage()

    def is_marked(pid: int) -> bool:
        return pid not in spared and _has_entry(pid, entry)

    killed: set[int] = set()
    while found := [pid for pid in _all_pids() if is_marked(pid)]:
        killed.update(_kill(found, is_marked, deadline))
        if time.monotonic() >= deadline:
            return len(killed), sum(is_marked(pid) for pid in found)
    return len(killed), 0


def remove_cgroup(root: Path, *, deadline: float) -> tuple[int, int]:
    """Kill and remove a subtree of ours; how many groups went, and how many remain.

    What is not a cgroup is left alone, and so are we ourselves if we happen to be in it.
    """
    groups = _groups(root)
    total = len(groups)
    while groups:
        for group in groups:
            _kill_group(group, deadline)
        groups = [group for group in groups if not _remove_group(group)]
        if time.monotonic() >= deadline:
            break
        if groups:
            time.sleep(_PAUSE_S)
    if groups:
        log.warning("cgroup.not_removed", path=str(root), left=len(groups))
    return total - len(groups), len(groups)


def _groups(root: Path) -> list[Path]:
    """Deepest first. A mount point has no parent group and is never ours to remove."""
    if not _is_group(root) or not _is_group(root.parent) or root.is_symlink():
        return []
    return [Path(path) for path, _, _ in os.walk(root, topdown=False)]


def _is_group(path: Path) -> bool:
    return (path / "cgroup.procs").is_file()


def _kill_group(group: Path, deadline: float) -> None:
    members = _members(group)
    if not members:
        return
    own = os.getpid()
    if own not in members:
        with contextlib.suppress(OSError):
            # v2 only; takes what is below, too, and what is forked meanwhile.
            (group / "cgroup.kill").write_text("1")
            return
    with contextlib.suppress(OSError):
        (group / "freezer.state").write_text("THAWED")
    _kill(members - {own}, lambda pid: pid in _members(group), deadline)


def _members(group: Path) -> set[int]:
    try:
        pids = {int(line) for line in (group / "cgroup.procs").read_text().split()}
    except OSError:
        return set()
    # Processes outside our pid namespace show as 0, which `kill` would take for ourselves.
    return pids - {0}


def _remove_group(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _kill(pids: Iterable[int], still: Callable[[int], bool], deadline: float) -> set[int]:
    """SIGKILL those for which `still` holds when pinned, and wait for their end."""
    with contextlib.ExitStack() as stack:
        pinned = dict(_pin(pids, stack))
        killed = {pid for pid in pinned if still(pid)}
        for pid in killed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(pinned[pid], signal.SIGKILL)
        _await_ends([pinned[pid] for pid in killed], deadline)
    return killed


def _pin(pids: Iterable[int], stack: contextlib.ExitStack) -> Iterator[tuple[int, int]]:
    for pid in pids:
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            stack.callback(os.close, fd)
            yield pid, fd


def _await_ends(pidfds: list[int], deadline: float) -> None:
    poll = select.poll()
    for fd in pidfds:
        poll.register(fd, select.POLLIN)
    left = len(pidfds)
    while left and (remaining_s := deadline - time.monotonic()) > 0:
        for fd, _ in poll.poll(remaining_s * 1000):
            poll.unregister(fd)
            left -= 1


def _lineage() -> set[int]:
    """This process and everything above it."""
    found, pid = set(), os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            stat = (_PROC / str(pid) / "stat").read_bytes()
        except OSError:
            break
        # The name in parentheses may itself hold blanks and parentheses: cut at the last one.
        pid = int(stat[stat.rfind(b")") + 2 :].split(None, 2)[1])
    return found


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - in bulk


def _has_entry(pid: int, entry: bytes) -> bool:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return entry in environment.split(b"\0")
