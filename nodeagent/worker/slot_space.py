"""The directories of a managed worker: one set per slot, reused by every attempt.

`<work dir>/task/` holds result, exec, resource and new_task.json and belongs to the slot's
sandboxed user; `std` and `spool` beside it are ours. Looked through after a task that changed one
of them; their inodes say whether it did. Made by managed.
"""

import os
import stat
import time
from pathlib import Path
from typing import Final

from typing_extensions import override

from nodeagent.worker.resource_files import PRIVATE, Access
from nodeagent.worker.workspace import Workspace, remove_tree

_TASK_DIRS: Final = ("result", "exec", "resource")
_OWN_DIRS: Final = ("std", "spool")
# Passing through is allowed to the sandboxed user, looking around is not.
_PASSAGE: Final = 0o711
OUTPUT_MODE: Final = 0o600
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Some file systems count whole seconds: a directory that changed later than this before it was
# looked through could change once more and still show the same time.
_SETTLED_NS: Final = 3_000_000_000


class SlotSpace(Workspace):
    """A workspace whose commands may be somebody else."""

    def __init__(self, work_dir: Path, owner: tuple[int, int] | None) -> None:
        super().__init__(work_dir, lock_fd=-1)
        task = work_dir / "task"
        self._task = task
        self._task_path = str(task)
        self._owner = owner
        self.result_dir = task / "result"
        self.exec_dir = task / "exec"
        self.resource_dir = task / "resource"
        self.new_task_file = task / "new_task.json"
        self._spool = str(self.spool_dir)
        self._watched = (self._task_path, *(f"{task}/{name}" for name in _TASK_DIRS), self._spool)
        self._seen_empty: list[tuple[int, int]] = []
        self._outputs = (str(self.stdout_file), str(self.stderr_file))
        self.access = PRIVATE if owner is None else Access(owner, 0o700, 0o700)

    def make(self) -> None:
        """From whatever an earlier life left, to an empty set."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._owner is not None:
            for path in (self.root.parent, self.root):
                path.chmod(_PASSAGE)
        for entry in os.scandir(self.root):
            self._discard(Path(entry.path))
        for name in _OWN_DIRS:
            (self.root / name).mkdir(mode=0o700)
        self._make_task_dirs()

    def is_spotless(self) -> bool:
        """Whether there is nothing to do before the next attempt; removes its small output files.

        Called on the event loop: some system calls, none of which waits for a disk.
        """
        for path in self._outputs:
            self._remove_used(path)
        traces = self._traces()
        if traces == self._seen_empty:
            return True
        self._seen_empty = []
        if not (_is_empty(self._spool) and self.is_clean()):
            return False
        now = time.clock_gettime_ns(time.CLOCK_REALTIME)
        if all(changed < now - _SETTLED_NS for _, changed in traces):
            self._seen_empty = traces
        return True

    @override
    def is_untouched(self) -> bool:
        return self._traces() == self._seen_empty

    def _traces(self) -> list[tuple[int, int]]:
        """What no command can put back once it has changed a directory or its entries: the times
        of files can be set by their owner, that of the inode's last change cannot.
        """
        return [_trace(path) for path in self._watched]

    def _remove_used(self, path: str) -> None:
        """An output file that nobody wrote to, linked or changed serves the next attempt as well:
        making, giving away and removing two of them costs more than all other files of a task.
        """
        try:
            info = os.lstat(path)
            is_new = info.st_size == 0 and info.st_nlink == 1
            if not is_new or stat.S_IMODE(info.st_mode) != OUTPUT_MODE:
                os.unlink(path)  # noqa: PTH108 - twice per task
        except FileNotFoundError:
            return

    def is_clean(self) -> bool:
        """Whether the last attempt left nothing that a command could have made."""
        with os.scandir(self._task_path) as entries:
            names = sorted(entry.name for entry in entries)
        return names == _SORTED_TASK_DIRS and all(map(self._is_untouched, _TASK_DIRS))

    @override
    def reset(self) -> None:
        """Leave only empty directories of the right owner and mode."""
        for name in _OWN_DIRS:
            for entry in os.scandir(self.root / name):
                remove_tree(Path(entry.path))
        if not self.is_clean():
            self._discard(self._task)
            self._make_task_dirs()

    @override
    def remove(self) -> None:
        remove_tree(self.root)

    def _make_task_dirs(self) -> None:
        for path in (self._task, *(self._task / name for name in _TASK_DIRS)):
            path.mkdir(mode=0o700)
            if self._owner is not None:
                fd = os.open(path, _FOLDER)
                try:
                    os.fchown(fd, *self._owner)
                finally:
                    os.close(fd)

    def _is_untouched(self, name: str) -> bool:
        path = f"{self._task_path}/{name}"
        info = os.lstat(path)
        if stat.S_IFMT(info.st_mode) != stat.S_IFDIR or stat.S_IMODE(info.st_mode) != 0o700:
            return False
        if self._owner is not None and (info.st_uid, info.st_gid) != self._owner:
            return False
        return _is_empty(path)


def _trace(path: str) -> tuple[int, int]:
    info = os.lstat(path)
    return info.st_ino, info.st_ctime_ns


def _is_empty(path: str) -> bool:
    with os.scandir(path) as entries:
        return next(entries, None) is None


_SORTED_TASK_DIRS: Final = sorted(_TASK_DIRS)
