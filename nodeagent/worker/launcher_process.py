"""Ways to get a launcher process: as a program of its own, below a keeper, forked from a worker.

A fork of a managed worker before it has opened anything costs 1 ms and shares its memory; later
it would inherit shared memory and sockets, so a lost launcher is replaced by a program (30 ms).
A process that also has children of others, as a direct worker with handlers has, gets it below a
keeper: ending what a lost launcher left means ending everything below whoever does it.
Called by launcher and slot.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from typing_extensions import override

from nodeagent.worker.confinement import Confinement
from nodeagent.worker.launcher_main import UNKILLABLE_AFTER_S, serve

# The package directory goes last on the path: nothing beside it may shadow the standard library.
_BOOT = "import sys; sys.path.append(sys.argv[1]);from nodeagent.worker.{} import main; main()"
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_POLL_S = 0.002
# Above the keeper's own limit for processes that do not die.
_KEEPER_S = UNKILLABLE_AFTER_S + 5.0
_MAX_FD = 1 << 20


class LauncherProcess(Protocol):
    """A child of ours; its pid is safe to signal until `wait` or `is_running` has seen it end."""

    @property
    def pid(self) -> int: ...
    def is_running(self) -> bool: ...
    def signal(self, signum: int) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout_s: float | None) -> bool: ...


class StartedLauncher(NamedTuple):
    """A launcher and our end of its channel."""

    process: LauncherProcess
    channel: socket.socket


def start_program(confinement: Confinement | None) -> StartedLauncher:
    """A launcher of its own, from nothing."""
    further = [] if confinement is None else [json.dumps(confinement._asdict())]
    process, channel = _start("launcher_main", further)
    return StartedLauncher(_Program(process), channel)


def start_below_keeper() -> StartedLauncher:
    """The same below a process that ends what the launcher leaves; that one is our child."""
    process, channel = _start("launcher_keeper", [])
    return StartedLauncher(_Keeper(process), channel)


def _start(module: str, further: list[str]) -> "tuple[subprocess.Popen[bytes], socket.socket]":
    ours, theirs = socket.socketpair()
    arguments = [_PACKAGE_ROOT, str(theirs.fileno()), str(os.getpid()), *further]
    with theirs:
        try:
            # A bare environment: the launcher needs none, and the worker's may hold secrets.
            process = subprocess.Popen(  # noqa: S603 - a fixed command line of our own
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT.format(module), *arguments],
                env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
    return process, ours


def fork_launcher(confinement: Confinement) -> StartedLauncher:
    """For a worker that has opened nothing yet and has one thread."""
    worker_pid = os.getpid()
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.detach()
        _be_launcher(theirs.detach(), worker_pid, confinement)
    theirs.close()
    return StartedLauncher(_Fork(pid), ours)


def _be_launcher(channel_fd: int, worker_pid: int, confinement: Confinement) -> NoReturn:
    """Never returns into the worker's code, whatever happens."""
    status = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.closerange(3, channel_fd)
        os.closerange(channel_fd + 1, _MAX_FD)
        serve(channel_fd, worker_pid, confinement)
        status = 0
    except BaseException:  # noqa: BLE001 - the last frame of a forked process
        traceback.print_exc()
    finally:
        os._exit(status)


class _Program:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal(self, signum: int) -> None:
        self._process.send_signal(signum)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout_s: float | None) -> bool:
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True


class _Keeper(_Program):
    @override
    def kill(self) -> None:
        """It takes the launcher and all below it along, which a killed one could not."""
        self.signal(signal.SIGTERM)
        if not self.wait(_KEEPER_S):
            super().kill()


class _Fork:
    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._is_reaped = False

    @property
    def pid(self) -> int:
        return self._pid

    def is_running(self) -> bool:
        if not self._is_reaped:
            try:
                self._is_reaped = os.waitpid(self._pid, os.WNOHANG)[0] != 0
            except ChildProcessError:
                self._is_reaped = True
        return not self._is_reaped

    def signal(self, signum: int) -> None:
        if self.is_running():
            os.kill(self._pid, signum)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def wait(self, timeout_s: float | None) -> bool:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self.is_running():
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True
