"""Results that the coordinator has not accepted yet, on disk (SQLite in WAL mode).

`add` and `forget` are committed when they return: the kernel has them, so a killed agent loses
nothing. `sync` makes everything added so far survive a power cut; agent calls it off the loop,
once for a group, before a line is sent. Sending again is harmless: every line has its op_id.
"""

import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal
from uuid import UUID

import msgspec

from mitosis_protocol.manager_reports import TaskReport
from nodeagent.errors import HostUnusable

# Small pages: a line has about 300 bytes, and every commit writes whole pages into the log.
_PAGE_BYTES: Final = 1024
# Beyond this the log is moved into the main file, by the syncing thread.
_CHECKPOINT_BYTES: Final = 8 << 20
# A writer that never pauses keeps the log from starting over; then it has to wait once.
_INSIST_BYTES: Final = 24 << 20
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS lines (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    op_id BLOB NOT NULL UNIQUE,
    line BLOB NOT NULL
)
"""


class OutboxEntry(msgspec.Struct, frozen=True):
    """One report line; `report.op_id` is `op_id`, drawn when the line was made."""

    op_id: UUID
    report: TaskReport


class Outbox:
    """Opened once by the agent. `sync` may run in another thread beside the other calls."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = path.with_name(f"{path.name}-wal")
        self._decoder = msgspec.json.Decoder(TaskReport)
        self._syncing = threading.Lock()
        # SQLite lets whoever comes first write, so a writer that never pauses would keep a
        # checkpoint out for ever. Whoever stands in the door is the next to have the file.
        self._door = threading.Lock()
        self._writing = threading.Lock()
        try:
            self._db = self._open()
            with self._db:
                self._db.execute(_SCHEMA)
            # The log exists only after the first write. It is opened once: its name and inode
            # stay while the database is open, and closing it would cost nothing but safety.
            self._log_fd = os.open(self._wal, os.O_RDONLY | os.O_CLOEXEC)
            # Opened once as well: SQLite would keep the file of one that is closed for the next.
            self._mover = self._connect()
            self._mover.execute("PRAGMA wal_checkpoint(PASSIVE)")
            _sync_directory(path.parent)
        except (OSError, sqlite3.Error) as error:
            raise HostUnusable(f"cannot open {path}: {error}; results would be lost") from error

    def add(self, entries: Sequence[OutboxEntry]) -> None:
        """Store lines in one transaction; one that is already there stays as it is."""
        rows = [(entry.op_id.bytes, msgspec.json.encode(entry.report)) for entry in entries]
        self._write("INSERT OR IGNORE INTO lines (op_id, line) VALUES (?, ?)", rows)

    def forget(self, op_ids: Collection[UUID]) -> None:
        """Drop what the coordinator has settled."""
        self._write("DELETE FROM lines WHERE op_id = ?", [(op_id.bytes,) for op_id in op_ids])

    def pending(self) -> list[OutboxEntry]:
        """Everything unsettled, oldest first."""
        rows = self._db.execute("SELECT op_id, line FROM lines ORDER BY seq").fetchall()
        return [OutboxEntry(UUID(bytes=op_id), self._decoder.decode(line)) for op_id, line in rows]

    def sync(self) -> None:
        """Return when everything added before the call is on the disk. Raises HostUnusable."""
        with self._syncing:
            try:
                os.fdatasync(self._log_fd)
                size = os.fstat(self._log_fd).st_size
                if size > _CHECKPOINT_BYTES:
                    self._checkpoint("RESTART" if size > _INSIST_BYTES else "PASSIVE")
            except (OSError, sqlite3.Error) as error:
                raise HostUnusable(f"cannot sync {self._path}: {error}") from error

    def close(self) -> None:
        with self._syncing:
            os.close(self._log_fd)
            self._mover.close()
            self._db.close()

    def _open(self) -> sqlite3.Connection:
        # Nothing in it is secret, but it is nobody else's business either.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        db = self._connect()
        db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        db.execute("PRAGMA journal_mode = WAL")
        # Commits write without waiting for the disk; `sync` waits, for many at once.
        db.execute("PRAGMA synchronous = NORMAL")
        # A checkpoint waits for the disk, so it must not happen inside `add`.
        db.execute("PRAGMA wal_autocheckpoint = 0")
        # Cut the log when it starts over, so that its size says when it is due again.
        db.execute("PRAGMA journal_size_limit = 0")
        return db

    def _connect(self) -> sqlite3.Connection:
        """Autocommit, and from any thread: `sync` has a connection of its own."""
        return sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)

    def _write(self, statement: str, rows: Sequence[tuple[bytes, ...]]) -> None:
        if not rows:
            return
        try:
            with self._next_in_turn():
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    self._db.executemany(statement, rows)
                except BaseException:
                    self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise HostUnusable(f"cannot write {self._path}: {error}") from error

    @contextmanager
    def _next_in_turn(self) -> Iterator[None]:
        with self._door:
            self._writing.acquire()
        try:
            yield
        finally:
            self._writing.release()

    def _checkpoint(self, mode: Literal["PASSIVE", "RESTART"]) -> None:
        """PASSIVE makes no writer wait, RESTART does while it moves the last pages."""
        self._mover.execute("PRAGMA wal_checkpoint(PASSIVE)")
        if mode == "RESTART":
            with self._next_in_turn():
                self._mover.execute("PRAGMA wal_checkpoint(RESTART)")


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
