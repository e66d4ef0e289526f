"""Writing a downloaded resource at a path that a stranger chose.

Every component is opened relative to its parent's descriptor without following links, so neither
`..` nor a planted symbolic link leads outside; the file appears complete or not at all.
Called by resources, in a thread: everything here blocks.
"""

import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from mitosis_protocol.limits import MAX_LOCAL_PATH_BYTES
from nodeagent.errors import ResourceRefused

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Access(NamedTuple):
    """Whose the new files and folders are, and their modes; None leaves them with us."""

    owner: tuple[int, int] | None = None  # uid, gid
    file_mode: int = 0o600
    folder_mode: int = 0o700

    def give(self, fd: int, mode: int) -> None:
        """Apply to an open file or folder, so that no name is looked up again."""
        os.fchmod(fd, mode)
        if self.owner is not None:
            os.fchown(fd, *self.owner)


PRIVATE = Access()


def local_parts(local_path: str) -> list[str]:
    """The components of a safe relative path; raises ResourceRefused for any other."""
    try:
        raw = os.fsencode(local_path)
    except UnicodeEncodeError as error:
        raise ResourceRefused("resource path is not encodable") from error
    if not raw or len(raw) > MAX_LOCAL_PATH_BYTES or b"\0" in raw:
        raise ResourceRefused("resource path is empty, too long or holds a NUL")
    if local_path.startswith("/"):
        raise ResourceRefused("resource path is absolute")
    parts = [part for part in local_path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise ResourceRefused("resource path names no file below the resource directory")
    return parts


class IncomingFile:
    """A file being written under a temporary name beside its final one.

    Use as a context manager; without `commit` nothing remains. Raises ResourceRefused when a
    component is a link or a file, or the file system refuses the name.
    """

    def __init__(self, root: Path, local_path: str, access: Access = PRIVATE) -> None:
        *folders, self._name = local_parts(local_path)
        self._access = access
        self._folder_fd = _open_folder(root, folders, access)
        self._temporary = f".incoming-{secrets.token_hex(8)}"
        try:
            self._file_fd = os.open(self._temporary, _NEW_FILE, 0o600, dir_fd=self._folder_fd)
        except OSError:
            os.close(self._folder_fd)
            raise
        self._is_done = False
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append all of `data`."""
        view = memoryview(data)
        while view:
            written = os.write(self._file_fd, view)
            view = view[written:]
            self.size += written

    def restart(self) -> None:
        """Forget what was written, for another try at the same download."""
        os.ftruncate(self._file_fd, 0)
        os.lseek(self._file_fd, 0, os.SEEK_SET)
        self.size = 0

    def commit(self) -> None:
        """Give the file its name; replaces a file, never a directory, never through a link."""
        try:
            self._access.give(self._file_fd, self._access.file_mode)
            os.rename(
                self._temporary,
                self._name,
                src_dir_fd=self._folder_fd,
                dst_dir_fd=self._folder_fd,
            )
        except OSError as error:
            raise ResourceRefused(f"resource path cannot be written: {error.strerror}") from error
        self._is_done = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file_fd)
        if not self._is_done:
            os.unlink(self._temporary, dir_fd=self._folder_fd)
        os.close(self._folder_fd)


def _open_folder(root: Path, folders: list[str], access: Access) -> int:
    """A descriptor of `root/folders...`, making what is missing; the caller closes it."""
    try:
        fd = os.open(root, _DIRECTORY)
    except OSError as error:
        raise ResourceRefused(f"resource directory is unusable: {error.strerror}") from error
    for name in folders:
        try:
            deeper = _open_or_make(name, fd, access)
        except OSError as error:
            raise ResourceRefused(f"resource path cannot be made: {error.strerror}") from error
        finally:
            os.close(fd)
        fd = deeper
    return fd


def _open_or_make(name: str, parent_fd: int, access: Access) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent_fd)
    except FileNotFoundError:
        os.mkdir(name, 0o700, dir_fd=parent_fd)
        fd = os.open(name, _DIRECTORY, dir_fd=parent_fd)
        try:
            access.give(fd, access.folder_mode)
        except OSError:
            os.close(fd)
            raise
        return fd
