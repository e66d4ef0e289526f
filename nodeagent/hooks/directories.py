"""The directory of one suite on this host: where hooks run, what they leave, and its end.

`suites/<uuid>/shared` belongs to the sandboxed user: hooks run there, their resources lie there and
tasks may read it. `suites/<uuid>/hooks` is ours: output and control files. All calls block.
"""

import os
import stat
from collections.abc import Collection
from pathlib import Path
from uuid import UUID

import msgspec
import structlog

from nodeagent.errors import HostUnusable
from nodeagent.hooks.context import Phase
from nodeagent.worker.resource_files import Access
from nodeagent.worker.workspace import remove_tree

log = structlog.stdlib.get_logger(__name__)

_SUITES = "suites"
# Passing through is allowed to the sandboxed user, looking around is not.
_PASSAGE = 0o711
# Every slot has a user of its own and all of them read what the hooks left, so it is open to
# everybody who knows the suite's uuid; `suites` itself cannot be listed. The RFC's `./setup.sh` is
# a resource that is run, hence executable.
_SHARED_MODE = 0o755


class Sandbox(msgspec.Struct, frozen=True):
    """The user commands run as when the agent is privileged."""

    uid: int
    gid: int


class SuiteDirs(msgspec.Struct, frozen=True):
    """The places of one suite; made by `make_suite_dirs`."""

    root: Path
    shared: Path
    hooks: Path

    def output(self, phase: Phase, stream: str) -> Path:
        return self.hooks / f"{phase}.{stream}.log"

    def environment(self, phase: Phase) -> Path:
        return self.hooks / f"{phase}.env"


def suite_dirs(data_dir: Path, suite_uuid: UUID) -> SuiteDirs:
    root = data_dir / _SUITES / str(suite_uuid)
    return SuiteDirs(root=root, shared=root / "shared", hooks=root / "hooks")


def make_suite_dirs(data_dir: Path, suite_uuid: UUID, sandbox: Sandbox | None) -> SuiteDirs:
    """Idempotent. Raises HostUnusable if something of ours is not a directory, OSError."""
    dirs = suite_dirs(data_dir, suite_uuid)
    for path in (dirs.root.parent, dirs.root):
        _make(path, _PASSAGE if sandbox else 0o700)
    _make(dirs.hooks, 0o700)
    _make(dirs.shared, 0o700, sandbox)
    return dirs


def file_access(sandbox: Sandbox | None) -> Access:
    """Whose the downloaded files are."""
    if sandbox is None:
        return Access(file_mode=0o700)
    return Access((sandbox.uid, sandbox.gid), _SHARED_MODE, _SHARED_MODE)


def remove_suite_dirs(data_dir: Path, suite_uuid: UUID) -> bool:
    """Everything of the suite; false (and a log line) if something could not be removed."""
    return _remove(suite_dirs(data_dir, suite_uuid).root)


def remove_other_suites(data_dir: Path, keep: Collection[UUID]) -> int:
    """Directories of suites nobody owes anything; returns how many went."""
    kept = {str(uuid) for uuid in keep}
    try:
        entries = list(os.scandir(data_dir / _SUITES))
    except FileNotFoundError:
        return 0
    return sum(_remove(Path(entry.path)) for entry in entries if entry.name not in kept)


def _make(path: Path, mode: int, owner: Sandbox | None = None) -> None:
    path.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if owner is not None:
            os.fchown(fd, owner.uid, owner.gid)
            mode = _SHARED_MODE
        elif os.fstat(fd).st_uid != os.geteuid():
            raise HostUnusable(f"{path} belongs to somebody else")
        if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
            os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _remove(path: Path) -> bool:
    try:
        remove_tree(path)
    except OSError as error:
        log.warning("suite_dir.not_removed", path=str(path), error=str(error))
        return False
    return True
