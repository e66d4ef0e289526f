"""Where the stack keeps things: the data directory and the short directory for Unix sockets.

Everything durable lives below the data directory. Sockets cannot: their path is limited to
107 bytes, and a data directory may be deeper than that.
"""

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mitosis_stack.errors import StackError
from mitosis_stack.privileges import ServiceUser

# PostgreSQL alone needs about 40 MB for an empty cluster; below this the first checkpoint may fail.
MINIMUM_FREE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class DataDir:
    """The paths below one data directory."""

    root: Path

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def valkey(self) -> Path:
        return self.root / "valkey"

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    @property
    def celery(self) -> Path:
        return self.root / "celery"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def agents(self) -> Path:
        return self.root / "agents"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def lock(self) -> Path:
        return self.root / "stack.lock"

    @property
    def state(self) -> Path:
        return self.root / "stack.json"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets.json"

    @property
    def admin(self) -> Path:
        return self.root / "admin.json"

    def create(self) -> None:
        """Make the private directory tree; say plainly when that is not possible."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            for path in (self.valkey, self.objects, self.celery, self.keys, self.logs):
                path.mkdir(exist_ok=True, mode=0o700)
            probe = self.root / f".writable-{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except FileExistsError:
            msg = f"{self.root} is not a directory; choose another --data-dir."
            raise StackError(msg) from None
        except PermissionError as error:
            msg = f"No permission to write {error.filename}; choose another --data-dir."
            raise StackError(msg) from None
        except OSError as error:
            msg = f"Cannot use {self.root} as data directory: {error.strerror}."
            raise StackError(msg) from None
        self._require_free_space()

    def _require_free_space(self) -> None:
        free = shutil.disk_usage(self.root).free
        if free < MINIMUM_FREE_BYTES:
            wanted = MINIMUM_FREE_BYTES // 1024 // 1024
            msg = (
                f"Only {free // 1024 // 1024} MB free on the disk of {self.root}; "
                f"free at least {wanted} MB or choose another --data-dir."
            )
            raise StackError(msg)


def runtime_dir(data: DataDir, user: ServiceUser | None, preferred: str | None) -> Path:
    """A short private directory for sockets, the same one on every start of this data directory.

    With a service user the directory itself is only passable (0711); what is inside is private.
    """
    name = f"mitosis-{os.getuid()}-{hashlib.sha256(str(data.root).encode()).hexdigest()[:10]}"
    for base in _runtime_bases(user, preferred):
        path = base / name
        with contextlib.suppress(OSError):
            path.mkdir(mode=0o700)
        if _is_ours(path):
            path.chmod(0o711 if user else 0o700)
            return path
    # Somebody else owns the predictable name in a shared directory: take one nobody can guess.
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir="/tmp"))


def remove_runtime_dir(path: Path) -> None:
    """After an orderly stop. Whatever cannot be removed is taken over by the next start."""
    shutil.rmtree(path, ignore_errors=True)


def _runtime_bases(user: ServiceUser | None, preferred: str | None) -> list[Path]:
    if user is not None:  # a per-user runtime directory would be closed to the service user
        return [Path("/run"), Path("/tmp")]  # noqa: S108 - ownership is checked
    bases = [Path(preferred)] if preferred and len(preferred) < 50 else []
    return [*bases, Path("/tmp")]  # noqa: S108 - ownership is checked


def _is_ours(path: Path) -> bool:
    try:
        info = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and os.access(path, os.W_OK)


def write_private(path: Path, content: str) -> None:
    """Write a file only its owner can read, whole or not at all (a crash leaves the old one)."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, content.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None when it is absent or was damaged."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
