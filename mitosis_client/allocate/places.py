"""The directory of an allocation: its lock, the agents' token, the logs of its jobs.

It has to be on a file system that the nodes see too. Everything in it is private.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mitosis_client.errors import ConfigError

KEPT_LOGS: Final = 200
_TAIL_BYTES: Final = 4096
_TAIL_LINES: Final = 3


class Place:
    """Made on first use."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.logs = directory / "logs"
        self.token_file = directory / "token"

    @contextmanager
    def held(self) -> Iterator[None]:
        """One allocator at a time, or two of them would each keep the limit for themselves."""
        self.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.directory.chmod(0o700)
        with (self.directory / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(
                    f"{self.directory}: another allocator works here; give this one another --name"
                ) from error
            yield

    def write_token(self, token: str) -> None:
        """For the agents. Private from its first byte on, and whole or not at all."""
        part = self.directory / f".token.{os.getpid()}"
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(token)
        part.replace(self.token_file)

    def log_tail(self, job: str) -> str:
        """The last lines that a job wrote; empty while the file is not here yet."""
        try:
            with (self.logs / f"{job}.log").open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except OSError:
            return ""
        return " / ".join(text.strip().splitlines()[-_TAIL_LINES:])

    def prune_logs(self) -> None:
        """The oldest by the number of their job, which only grows."""
        logs = [log for log in self.logs.glob("*.log") if log.stem.isdecimal()]
        for log in sorted(logs, key=lambda log: int(log.stem))[:-KEPT_LOGS]:
            log.unlink(missing_ok=True)


def check_token_file(path: Path) -> None:
    """A token of the operator's own. Raises ConfigError."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"token-file: {path}: {error.strerror}") from error
    if mode & 0o077:
        raise ConfigError(f"token-file: others can read {path}; chmod 600 it")
