"""PostgreSQL as a child: a cluster below the data directory, reachable by a Unix socket alone.

Started as root it runs as a service user, with its data directory as working directory and
`-D /proc/self/cwd`: so it works even below a private home that this user could not walk through.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mitosis_stack.binaries import PostgresPrograms
from mitosis_stack.errors import ChildFailed
from mitosis_stack.guardian import start_time
from mitosis_stack.layout import write_private
from mitosis_stack.privileges import ServiceUser
from mitosis_stack.process import ChildSpec

ROLE = "mitosis"
DATABASE = "mitosis"

CONFIGURATION: Mapping[str, str] = {
    "listen_addresses": "",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    # Nobody replicates from an embedded cluster; this keeps its log small.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
    "timezone": "UTC",
}


@dataclass(frozen=True)
class Postgres:
    """One cluster."""

    directory: Path
    sockets: Path
    log: Path
    password: str
    programs: PostgresPrograms
    user: ServiceUser | None
    inherited: Mapping[str, str]
    overrides: Mapping[str, str] = field(default_factory=dict)
    name: str = "postgres"
    # Crash recovery replays up to max_wal_size.
    start_timeout_s: float = 120.0

    @property
    def url(self) -> str:
        host = urllib.parse.quote(str(self.sockets), safe="")
        return f"postgresql://{ROLE}:{self.password}@/{DATABASE}?host={host}"

    def prepare(self) -> None:
        self._make_owned(self.sockets)
        if not (self.directory / "PG_VERSION").exists():
            self._create_cluster()
        self._remove_stale_pid()

    def spec(self) -> ChildSpec:
        settings = {
            **CONFIGURATION,
            "unix_socket_directories": str(self.sockets),
            **self.overrides,
        }
        flags = [f"--{name}={value}" for name, value in settings.items()]
        return ChildSpec(
            name=self.name,
            argv=(self.programs.program("postgres"), "-D", self._where(), *flags),
            log=self.log,
            env=self._environment(),
            cwd=self.directory,
            user=self.user,
            # SIGINT is PostgreSQL's "fast" shutdown: sessions are ended, everything is flushed.
            stop_signal=signal.SIGINT,
            stop_grace_s=30.0,
        )

    def is_ready(self) -> bool:
        done = subprocess.run(  # noqa: S603 - our own program from the locked wheel
            [self.programs.program("pg_isready"), "-q", "-h", str(self.sockets), "-d", DATABASE],
            env=self._environment(),
            check=False,
        )
        return done.returncode == 0

    def _create_cluster(self) -> None:
        """Build the cluster aside and rename it, so that a crash never leaves half of one."""
        partial = self.directory.with_name(f"{self.directory.name}.new")
        shutil.rmtree(partial, ignore_errors=True)
        # An empty directory of that name may be there; anything else would have PG_VERSION.
        with contextlib.suppress(OSError):
            self.directory.rmdir()
        self._make_owned(partial)
        # By file, in the private socket directory: an argument would show in the process list.
        password_file = self.sockets / "password"
        write_private(password_file, self.password)
        if self.user:
            os.chown(password_file, self.user.uid, self.user.gid)
        try:
            self._run(
                partial,
                ["initdb", "-D", self._where(partial), "-U", ROLE, "--auth=scram-sha-256",
                 f"--pwfile={password_file}", "--encoding=UTF8", "--locale-provider=builtin",
                 "--builtin-locale=C.UTF-8", "--locale=C"],
            )  # fmt: skip
        finally:
            password_file.unlink()
        self._run(
            partial,
            ["postgres", "--single", "-D", self._where(partial), "postgres"],
            stdin=f"CREATE DATABASE {DATABASE};\n",
        )
        partial.rename(self.directory)

    def _run(self, directory: Path, command: list[str], *, stdin: str = "") -> None:
        user = self.user
        done = subprocess.run(  # noqa: S603 - our own program
            [self.programs.program(command[0]), *command[1:]],
            cwd=directory,
            env=self._environment(),
            input=stdin,
            text=True,
            capture_output=True,
            check=False,
            user=user.uid if user else None,
            group=user.gid if user else None,
            extra_groups=[] if user else None,
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            msg = f"PostgreSQL's {command[0]} failed in {directory}: {last}"
            raise ChildFailed(msg)

    def _where(self, directory: Path | None = None) -> str:
        return "/proc/self/cwd" if self.user else str(directory or self.directory)

    def _make_owned(self, path: Path) -> None:
        path.mkdir(exist_ok=True, mode=0o700)
        path.chmod(0o700)
        if self.user:
            os.chown(path, self.user.uid, self.user.gid)

    def _environment(self) -> dict[str, str]:
        return {**self.inherited, "LC_ALL": "C", "PGUSER": ROLE}

    def _remove_stale_pid(self) -> None:
        """After a crash the pid in postmaster.pid may be a stranger's, and PostgreSQL would refuse.

        The data directory's lock is ours, so only a live postmaster of this very cluster counts.
        """
        path = self.directory / "postmaster.pid"
        try:
            pid = int(path.read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return
        if start_time(pid) is not None and not _works_in(pid, self.directory):
            path.unlink(missing_ok=True)


def _works_in(pid: int, directory: Path) -> bool:
    """Whether that process has the cluster as working directory, as every postmaster has."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == directory.resolve()
    except OSError:
        return True  # cannot tell (another user, no /proc): let PostgreSQL decide
