"""One agent per machine and per data directory: flocks that die with the process.

Taken by agent before anything else is touched. Distinct `--instance` names have distinct machine
locks; the lock in the data directory holds whatever the name, because two agents must never share
an identity or an outbox. The descriptors are not inherited: a child that outlives us holds nothing.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from nodeagent.errors import AnotherAgentRunning, HostUnusable

_LOCK_NAME = "agent"


class MachineLock:
    """Held from `acquire` until `release` or the end of the process, however it ends."""

    def __init__(self, lock_dir: Path, data_dir: Path, instance: str) -> None:
        name = f"{_LOCK_NAME}-{instance}" if instance else _LOCK_NAME
        self._machine = lock_dir / f"{name}.lock"
        self._data = data_dir / f"{_LOCK_NAME}.lock"
        self._instance = instance
        self._descriptors: list[int] = []

    def acquire(self) -> None:
        """Raises AnotherAgentRunning, naming the holder, or HostUnusable."""
        try:
            _make_private_dir(self._machine.parent)
            self._take(self._machine, self._taken_machine)
            self._take(self._data, self._taken_data)
        except OSError as error:
            self.release()
            raise HostUnusable(f"cannot lock {error.filename}: {error.strerror}") from error
        except AnotherAgentRunning:
            self.release()
            raise

    def release(self) -> None:
        """Let go; the files stay, because removing them would race with the next holder."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _take(self, path: Path, refusal: str) -> None:
        # NOFOLLOW: the directory may be shared, and the pid is written into the file.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            raise AnotherAgentRunning(refusal.format(holder=holder or "unknown")) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    @property
    def _taken_machine(self) -> str:
        if self._instance:
            return f"an agent called {self._instance} already runs here (pid {{holder}})"
        return (
            "another agent already runs on this machine (pid {holder}); "
            "give this one a name with --instance"
        )

    @property
    def _taken_data(self) -> str:
        return f"another agent already uses {self._data.parent} (pid {{holder}})"


def _make_private_dir(path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        # In a shared directory such as /tmp somebody could have made it first.
        raise HostUnusable(f"{path} is not a directory of this user: set lock_dir")
