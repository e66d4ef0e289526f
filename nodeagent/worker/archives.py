"""Building the tar.gz files a task leaves behind, in constant memory.

Links are stored as links, never followed; devices, pipes and sockets are left out; set-uid bits
are dropped. Called by artifacts, in a thread: everything here blocks.
"""

import contextlib
import gzip
import io
import os
import stat
import tarfile
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import BinaryIO, cast

import structlog

log = structlog.stdlib.get_logger(__name__)

# What existing workers use; 9, Python's default, costs three times the time for 1 % of size.
_LEVEL = 6
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# As much of one archive is kept in memory; three of them are the most a worker has at a time.
MAX_MEMORY_BYTES = 256 * 1024
# Existing clients expect the two logs with this mode, whatever they had on the host.
_LOG_MODE = 0o664


class ArchiveAborted(Exception):
    """The caller set the abort flag while an archive was being written."""


def has_entries(folder: Path) -> bool:
    """Whether a real directory (not a link to one) has anything in it."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            return False
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


class Spool:
    """Where an archive is written: memory while it is small, a file from then on.

    Most archives are a few hundred bytes; their way through a file took six hops to a thread.
    """

    def __init__(self, file: Path, most_bytes: int = MAX_MEMORY_BYTES) -> None:
        self._path = file
        self._most_bytes = most_bytes
        self._memory: io.BytesIO | None = io.BytesIO()
        self._file: BinaryIO | None = None
        self.size = 0

    @property
    def content(self) -> bytes | Path:
        """What was written, or the file it is in."""
        return self._path if self._memory is None else self._memory.getvalue()

    def write(self, data: bytes) -> int:
        if self._memory is not None and self.size + len(data) > self._most_bytes:
            self._file = self._path.open("wb")
            self._file.write(self._memory.getvalue())
            self._memory = None
        self.size += len(data)
        return (self._file or cast("BinaryIO", self._memory)).write(data)

    def flush(self) -> None:
        """For whoever writes; `close` is what counts."""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def archive_folder(folder: Path, prefix: str, target: Spool, abort: threading.Event) -> None:
    """Write everything below `folder` as `prefix/...`."""
    skipped = 0
    with _Writer(target, abort) as writer:
        writer.add(folder, prefix)
        with contextlib.closing(_walk(folder)) as paths:
            for path in paths:
                # Text, not relative_to: that compares all parts, of every path in a deep tree.
                if not writer.add(path, prefix + str(path)[len(str(folder)) :]):
                    skipped += 1
    if skipped:
        log.warning("archive.entries_skipped", archive=prefix, count=skipped)


def archive_logs(files: Mapping[str, Path], target: Spool, abort: threading.Event) -> None:
    """Write the given files under the given member names."""
    with _Writer(target, abort) as writer:
        for name, path in files.items():
            writer.add(path, name, mode=_LOG_MODE)


def _walk(folder: Path) -> Generator[Path, None, None]:
    # An explicit stack: a task may nest directories deeper than Python recurses.
    pending = [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    path = Path(entry.path)
                    yield path
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(path)
        except OSError as error:
            log.warning("archive.folder_skipped", error=error.strerror)


class _Writer:
    """A streaming tar.gz writer that can be told to stop between two blocks."""

    def __init__(self, target: Spool, abort: threading.Event) -> None:
        self._abort = abort
        self._target = target
        self._zip = gzip.GzipFile(
            filename="", mode="wb", compresslevel=_LEVEL, fileobj=cast("BinaryIO", target), mtime=0
        )
        self._tar = tarfile.TarFile(
            fileobj=cast("BinaryIO", self._zip), mode="w", format=tarfile.PAX_FORMAT
        )

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._tar.close()
        finally:
            try:
                self._zip.close()
            finally:
                self._target.close()

    def add(self, path: Path, name: str, mode: int | None = None) -> bool:
        """Add one entry; false when it is of a kind we leave out or cannot be read."""
        try:
            info = path.lstat()
            source = os.open(path, _READ) if stat.S_ISREG(info.st_mode) else None
            link = str(path.readlink()) if stat.S_ISLNK(info.st_mode) else ""
        except OSError:
            # Only what reading says: a full disk while writing must be heard.
            return False
        if source is not None:
            self._add_file(source, name, mode)
        elif link:
            member = _member(name, info, tarfile.SYMTYPE)
            member.linkname = link
            self._put(member)
        elif stat.S_ISDIR(info.st_mode):
            self._put(_member(name, info, tarfile.DIRTYPE))
        else:
            return False
        return True

    def _add_file(self, source_fd: int, name: str, mode: int | None) -> None:
        with os.fdopen(source_fd, "rb", buffering=0) as source:
            info = os.fstat(source_fd)
            member = _member(name, info, tarfile.REGTYPE)
            member.size = info.st_size
            if mode is not None:
                member.mode = mode
            self._put(member, cast("BinaryIO", _Watched(source, info.st_size, self._abort)))

    def _put(self, member: tarfile.TarInfo, source: BinaryIO | None = None) -> None:
        if self._abort.is_set():
            raise ArchiveAborted
        self._tar.addfile(member, source)
        # tarfile remembers every member it wrote (1 GB for a million files); we never ask.
        self._tar.members = []  # type: ignore[attr-defined]  # not in typeshed


class _Watched:
    """A file that yields exactly the announced bytes, zero-padded if it shrank meanwhile."""

    def __init__(self, source: BinaryIO, size: int, abort: threading.Event) -> None:
        self._source = source
        self._left = size
        self._abort = abort

    def read(self, wanted: int) -> bytes:
        if self._abort.is_set():
            raise ArchiveAborted
        wanted = min(wanted, self._left)
        data = bytearray()
        while len(data) < wanted:
            data += self._source.read(wanted - len(data)) or bytes(wanted - len(data))
        self._left -= wanted
        return bytes(data)


def _member(name: str, info: os.stat_result, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.mode = stat.S_IMODE(info.st_mode) & 0o777
    member.mtime = int(info.st_mtime)
    return member
