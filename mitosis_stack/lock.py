"""One supervisor per data directory, by an flock that the kernel drops when its holders are gone.

The guardian inherits the descriptor, so after `kill -9` of the supervisor the lock stays taken
until the last child is stopped: whoever gets the lock knows that nothing of the old stack runs.
"""

import fcntl
import os
import time
from pathlib import Path

from mitosis_stack.errors import AlreadyRunning, StackError


class DataDirLock:
    """Held while a stack runs; a file left behind by a crash means nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        if self._descriptor is None:
            msg = "the lock is not held"
            raise RuntimeError(msg)
        return self._descriptor

    def acquire(self, *, wait_s: float = 0.0) -> None:
        """Take the lock or raise AlreadyRunning; `wait_s` lets a stopping stack finish."""
        deadline = time.monotonic() + wait_s
        descriptor = self._open()
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    msg = f"A stack already runs on {self._path.parent}."
                    raise AlreadyRunning(msg) from None
                time.sleep(0.05)
            else:
                self._descriptor = descriptor
                return

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def is_free(self) -> bool:
        """Whether nobody holds it now; never keeps it."""
        if not self._path.exists():
            return True
        try:
            self.acquire()
        except AlreadyRunning:
            return False
        self.release()
        return True

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError:
            msg = f"No permission to use {self._path.parent}: it belongs to another user."
            raise StackError(msg) from None
