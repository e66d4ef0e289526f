"""What this host owes: a cleanup for every preparation that was begun, on disk until it has run.

Written and synced before preparation starts, removed after cleanup, so that a crash, a reboot or a
`kill -9` at any step leaves either nothing to clean up or a note that says so. One file per
engagement below `debts/`. Called by the agent's shell, in a thread: everything here blocks.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
import structlog

from mitosis_protocol.faults import fault
from mitosis_protocol.specs import EnvHookSpec
from mitosis_protocol.to_manager import TaskSuiteSpec
from nodeagent.hooks.context import HookContext

log = structlog.stdlib.get_logger(__name__)

_NAME: Final = re.compile(r"([0-9]{1,19})\.json")
_TEMPORARY: Final = ".new"
_ASIDE: Final = "unreadable"


class Debt(msgspec.Struct, frozen=True, kw_only=True):
    """One engagement whose host is not clean. Newer versions add members with defaults only."""

    assignment_id: int
    suite_uuid: UUID
    suite_name: str
    group_name: str
    worker_count: int
    manager_uuid: UUID
    hook: EnvHookSpec | None = None  # without one only the directory is left to remove

    @classmethod
    def of(cls, suite: TaskSuiteSpec, *, assignment_id: int, manager_uuid: UUID) -> "Debt":
        return cls(
            assignment_id=assignment_id,
            suite_uuid=suite.uuid,
            suite_name=suite.name,
            group_name=suite.group_name,
            worker_count=suite.worker_schedule.worker_count,
            manager_uuid=manager_uuid,
            hook=suite.env_cleanup,
        )

    @property
    def context(self) -> HookContext:
        """For running the cleanup hook."""
        return HookContext(
            phase="cleanup",
            suite_uuid=self.suite_uuid,
            suite_name=self.suite_name,
            group_name=self.group_name,
            worker_count=self.worker_count,
            manager_uuid=self.manager_uuid,
            assignment_id=self.assignment_id,
        )


class DebtBook:
    """The directory of debts. One process writes it; nothing is kept in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def owe(self, debt: Debt) -> None:
        """On disk when this returns; again for the same engagement replaces it. Raises OSError."""
        self._make_directory()
        final = self._file(debt.assignment_id)
        temporary = final.with_suffix(_TEMPORARY)
        fault("debt.before_write")
        _write_synced(temporary, msgspec.json.encode(debt))
        fault("debt.written")
        temporary.rename(final)
        fault("debt.renamed")
        _sync_directory(self._path)
        fault("debt.owed")

    def settle(self, assignment_id: int) -> None:
        """The cleanup has run. Settling what is not owed does nothing. Raises OSError."""
        fault("debt.before_settle")
        with contextlib.suppress(FileNotFoundError):
            self._file(assignment_id).unlink()
            fault("debt.unlinked")
            _sync_directory(self._path)
        fault("debt.settled")

    def open_debts(self) -> list[Debt]:
        """Oldest engagement first. A file that cannot be read is moved aside, never in the way."""
        return sorted(self._read_all(), key=lambda debt: debt.assignment_id)

    def _read_all(self) -> Iterator[Debt]:
        for path in self._entries():
            if path.suffix == _TEMPORARY:
                # Never renamed, so its preparation never started.
                self._drop(path)
            elif _NAME.fullmatch(path.name):
                debt = self._read(path)
                if debt is not None:
                    yield debt

    def _entries(self) -> list[Path]:
        try:
            return list(self._path.iterdir())
        except FileNotFoundError:
            return []
        except OSError:
            log.exception("debts.unreadable", path=str(self._path))
            return []

    def _read(self, path: Path) -> Debt | None:
        try:
            debt = msgspec.json.decode(path.read_bytes(), type=Debt)
        except (OSError, ValueError) as error:
            # msgspec's errors and our own InvalidValue are ValueErrors.
            self._move_aside(path, str(error))
            return None
        if self._file(debt.assignment_id) != path:
            self._move_aside(path, f"it is about engagement {debt.assignment_id}")
            return None
        return debt

    def _move_aside(self, path: Path, reason: str) -> None:
        shelf = self._path / _ASIDE
        target = shelf / path.name
        try:
            shelf.mkdir(mode=0o700, exist_ok=True)
            number = 0
            while os.path.lexists(target):
                number += 1
                target = shelf / f"{path.name}.{number}"
            path.rename(target)
        except OSError:
            log.exception("debt.unreadable_and_not_moved", path=str(path), reason=reason)
            return
        log.error("debt.unreadable", moved_to=str(target), reason=reason)

    def _drop(self, path: Path) -> None:
        try:
            path.unlink()
        except OSError as error:
            log.warning("debt.not_dropped", path=str(path), error=str(error))

    def _make_directory(self) -> None:
        try:
            self._path.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            return
        _sync_directory(self._path.parent)

    def _file(self, assignment_id: int) -> Path:
        return self._path / f"{assignment_id}.json"


def _write_synced(path: Path, data: bytes) -> None:
    # The hook's environment may hold secrets of the group, hence 0600.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
