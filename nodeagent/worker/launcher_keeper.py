"""The process between a worker with children of its own and a launcher: `python -c ... main()`.

Commands may kill their launcher. What it leaves is then adopted by the nearest subreaper above,
which ends everything below itself; in a direct worker that would be the browsers and models of its
handlers as well. So the keeper is that subreaper, and has no other children. It ends with its
launcher, when told (SIGTERM), and with its worker. Standard library only.
"""

import os
import signal
import sys
from typing import NoReturn

from nodeagent.worker.launcher_main import UNKILLABLE_AFTER_S, serve
from nodeagent.worker.process_tree import (
    Reaped,
    become_subreaper,
    end_descendants,
    hide_memory,
    reap,
    signal_on_parent_death,
)

_HEARD = (signal.SIGCHLD, signal.SIGCONT, signal.SIGTERM)


def main() -> None:
    """argv: package root, the launcher's channel descriptor, pid of the worker."""
    channel_fd, worker_pid = int(sys.argv[2]), int(sys.argv[3])
    become_subreaper()
    hide_memory()
    # Held back from now on, so that none is lost before `sigwait` asks for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    for signum in (signal.SIGHUP, signal.SIGINT):
        signal.signal(signum, signal.SIG_IGN)
    signal_on_parent_death(signal.SIGTERM)
    launcher_pid = os.fork()
    if launcher_pid == 0:
        _be_launcher(channel_fd)
    # The worker learns of the launcher's end by the end of the channel: it must have one end only.
    os.close(channel_fd)
    reaped: dict[int, Reaped] = {}
    if os.getppid() == worker_pid:
        _wait(launcher_pid, reaped)
    end_descendants(reaped, timeout_s=UNKILLABLE_AFTER_S)


def _be_launcher(channel_fd: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        serve(channel_fd, os.getppid())
        status = 0
    finally:
        os._exit(status)


def _wait(launcher_pid: int, reaped: dict[int, Reaped]) -> None:
    while launcher_pid not in reaped:
        signum = signal.sigwait(_HEARD)
        if signum == signal.SIGTERM:
            return
        if signum == signal.SIGCONT:
            # Meant for the launcher: its command may have stopped it.
            os.kill(launcher_pid, signal.SIGCONT)
        reap(reaped)
