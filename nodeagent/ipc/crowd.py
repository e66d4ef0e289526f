"""Whether there are cores to spare on this host: one byte that the agent writes and workers read.

A worker that spins for an answer helps itself as long as agent and workers have a core each, and
hurts everybody else beyond. Only the agent knows how many there are at the moment, and the answer
must cost nothing: the byte is in a file that all of them have mapped. Written by desk, read by the
clients.
"""

import mmap
import os
from pathlib import Path
from typing import Final

_NAME: Final = "crowd"
_NONE: Final = b"\x00"
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Crowd:
    """The agent's side; counts in vain until it is opened."""

    def __init__(self, root: Path) -> None:
        self._path = root / _NAME
        self._cores = len(os.sched_getaffinity(0))
        self._byte: bytearray | mmap.mmap = bytearray(_NONE)

    def open(self) -> None:
        self._path.unlink(missing_ok=True)
        fd = os.open(self._path, _NEW, 0o600)
        try:
            os.write(fd, _NONE)
            self._byte = mmap.mmap(fd, 1)
        finally:
            os.close(fd)

    def count(self, workers: int) -> None:
        """So many of them share the cores with the agent."""
        self._byte[0] = workers + 1 <= self._cores

    def close(self) -> None:
        self._byte = bytearray(_NONE)
        self._path.unlink(missing_ok=True)


class CrowdView:
    """A worker's side. Without the file there is never room."""

    def __init__(self, root: Path) -> None:
        self._byte: bytes | mmap.mmap = _NONE
        try:
            fd = os.open(root / _NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            self._byte = mmap.mmap(fd, 1, prot=mmap.PROT_READ)
        except (OSError, ValueError):
            return  # cut off by somebody, or being made
        finally:
            os.close(fd)

    def has_room(self) -> bool:
        return self._byte[0] != 0
