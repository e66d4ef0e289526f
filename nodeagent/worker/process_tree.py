"""Linux process control that must not leave anything behind: prctl and tree-wide kill.

Owns the subreaper trick: descendants of a subreaper never escape to init, however often they
fork and call setsid, so "no children left" proves the tree is gone. Called by launcher_main and,
when a launcher was killed, by launcher. Standard library only: launcher_main runs without site.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

# From <linux/prctl.h>; the standard library has no names for them.
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

# A tree that still grows after so many freezing rounds is a fork bomb: kill without waiting.
_FREEZE_ROUNDS = 20
_ROUND_PAUSE_S = 0.001

# From <sys/signalfd.h>: the number of the signal comes first in each record. And glibc's sigset_t.
_SIGNAL_RECORD_BYTES = 128
_SIGNAL_READ_BYTES = 16 * _SIGNAL_RECORD_BYTES
_SIGSET_BYTES = 128

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def become_subreaper() -> None:
    """From now on orphaned descendants become children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def signal_on_parent_death(signum: int) -> None:
    """Ask for `signum` when the parent *thread* ends; the caller checks getppid afterwards."""
    _prctl(_PR_SET_PDEATHSIG, signum)


def hide_memory() -> None:
    """Keep other processes of the same user out of /proc/<pid>/environ and ptrace."""
    _prctl(_PR_SET_DUMPABLE, 0)


def forbid_new_privileges() -> None:
    """No set-uid program, no file capability helps this process or its children any more."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def receive_signals(signums: Collection[int]) -> int:
    """From now on these come as records on the descriptor that is returned, and in no other way.

    A handler costs a small process more than the work it announces: the interrupted wait, the
    byte through a pipe, the second wait. The standard library has no `signalfd` before 3.14.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, signums)
    mask = ctypes.create_string_buffer(_SIGSET_BYTES)
    _libc.sigemptyset(mask)
    for signum in signums:
        _libc.sigaddset(mask, signum)
    fd: int = _libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return fd


def read_signals(fd: int) -> set[int]:
    """Those that have come since the last call."""
    try:
        records = os.read(fd, _SIGNAL_READ_BYTES)
    except BlockingIOError:
        return set()
    return {
        int.from_bytes(records[start : start + 4], sys.byteorder)
        for start in range(0, len(records), _SIGNAL_RECORD_BYTES)
    }


class Reaped(NamedTuple):
    """One collected child: its raw wait status and what it used."""

    status: int
    max_rss_kib: int
    cpu_s: float


class Sweep(NamedTuple):
    """What `end_descendants` did: how many it had to kill, and how many would not die."""

    killed: int
    survivors: int


def reap(into: dict[int, Reaped]) -> bool:
    """Collect every dead child into `into`; false when no child is left at all."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        into[pid] = Reaped(status, usage.ru_maxrss, round(usage.ru_utime + usage.ru_stime, 6))


def end_descendants(
    into: dict[int, Reaped], *, timeout_s: float, spared: Collection[int] = ()
) -> Sweep:
    """Kill and reap everything below this process; returns when nothing is left or time is up.

    Processes are frozen before they are killed, so that one cannot fork while its parent dies.
    `spared` children keep their lives and their trees.
    """
    deadline = time.monotonic() + timeout_s
    frozen: set[int] = set()
    rounds = 0
    while reap(into):
        tree = descendants(os.getpid(), spared)
        if spared and not tree:
            break
        fresh = tree - frozen
        send_all(fresh, signal.SIGSTOP)
        frozen |= fresh
        rounds += 1
        if not fresh or rounds > _FREEZE_ROUNDS:
            send_all(tree, signal.SIGKILL)
        if time.monotonic() > deadline:
            return Sweep(len(frozen) - len(tree), len(tree))
        time.sleep(_ROUND_PAUSE_S)
    return Sweep(len(frozen), 0)


def send_all(pids: Iterable[int], signum: int) -> None:
    """Signal each pid that is still there and ours to signal."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue


def descendants(root: int, spared: Collection[int] = ()) -> set[int]:
    """Every process below `root`, zombies included, from one pass over /proc.

    Neither `spared` processes nor what is below them.
    """
    by_parent: dict[int, list[int]] = {}
    for pid, parent in _parents():
        if pid in spared:
            continue
        by_parent.setdefault(parent, []).append(pid)
    found: set[int] = set()
    frontier = [root]
    while frontier:
        below = by_parent.get(frontier.pop(), [])
        found.update(below)
        frontier.extend(below)
    return found


def kill_by_environment(entry: bytes) -> int:
    """Kill every process started with exactly this `NAME=value`; returns how many."""
    found: list[int] = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - as below
        if not name.isdigit():
            continue
        try:
            environment = Path("/proc", name, "environ").read_bytes()
        except OSError:
            continue
        if entry in environment.split(b"\0"):
            found.append(int(name))
    send_all(found, signal.SIGKILL)
    return len(found)


def _parents() -> Iterable[tuple[int, int]]:
    for entry in os.listdir("/proc"):  # noqa: PTH208 - Path objects would triple the cost
        if not entry.isdigit():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_bytes()
        except OSError:
            continue
        # The name in parentheses may itself hold blanks and parentheses: cut at the last one.
        fields = stat[stat.rfind(b")") + 2 :].split(None, 2)
        yield int(entry), int(fields[1])
