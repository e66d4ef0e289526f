"""Stops every child when the supervisor is gone, however it went. The supervisor runs it.

It reads `add PID START SIGNAL` and `remove PID` lines from the pipe given as argument; the end of
the pipe means that the supervisor died. Standard library only, so that it starts in milliseconds.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

# The promise is "nothing left after 5 s"; what ignores its signal gets SIGKILL well before that.
GRACE_S = 3.0


def main(pipe: int) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    children = watch(pipe)
    stop_all(children)
    return 0


def watch(pipe: int) -> dict[int, tuple[str, int]]:
    """Follow the supervisor's list until the pipe ends; what is left was abandoned."""
    children: dict[int, tuple[str, int]] = {}
    with os.fdopen(pipe) as lines:
        for line in lines:
            word, pid, *rest = line.split()
            if word == "add":
                children[int(pid)] = (rest[0], int(rest[1]))
            else:
                children.pop(int(pid), None)
    return children


def stop_all(children: dict[int, tuple[str, int]]) -> None:
    """Ask first, then kill, newest child first; a recycled pid is never touched."""
    live = {pid: mark for pid, (mark, _) in children.items() if start_time(pid) == mark}
    # Listed before anybody ends: later the number of an empty group may belong to a stranger.
    helpers = members_of(set(live))
    for pid in reversed(live):
        _signal_process(pid, children[pid][1])
    everyone = {**live, **helpers}
    deadline = time.monotonic() + GRACE_S
    while everyone and time.monotonic() < deadline:
        everyone = {pid: mark for pid, mark in everyone.items() if start_time(pid) == mark}
        time.sleep(0.05)
    for pid, mark in everyone.items():
        if start_time(pid) == mark:
            _signal_process(pid, signal.SIGKILL)


def members_of(groups: set[int]) -> dict[int, str]:
    """Processes in those process groups besides the leaders, each with its start time."""
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        fields = _stat_fields(int(entry.name))
        if fields is not None and int(fields[2]) in groups and int(entry.name) not in groups:
            found[int(entry.name)] = fields[19]
    return found


def _signal_process(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def start_time(pid: int) -> str | None:
    """What tells two processes with one pid apart; None when it is gone or a zombie."""
    if not Path("/proc/self").exists():
        # Outside Linux there is no /proc: fall back on "is there such a process".
        return _exists(pid)
    fields = _stat_fields(pid)
    return None if fields is None or fields[0] in {"Z", "X"} else fields[19]


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the command's name; None when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _exists(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    return "0"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
