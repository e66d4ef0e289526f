"""The credential file shared with existing clients: lines `user:token`, mode 0600.

Called by enrolment. Reads what others wrote, changes only its own user's line, and replaces the
file as a whole so that a reader never sees half of it.
"""

import os
import tempfile
from pathlib import Path

import msgspec
import structlog
from typing_extensions import override

log = structlog.stdlib.get_logger(__name__)


class Credential(msgspec.Struct, frozen=True):
    """A user and the token kept for that user."""

    user: str
    token: str

    @override
    def __repr__(self) -> str:
        return f"Credential(user={self.user!r})"


def find_credential(path: Path, user: str | None) -> Credential | None:
    """The line of `user`, or the first line when no user was named."""
    for line in _lines(path):
        name, separator, token = line.partition(":")
        if separator and token.strip() and user in (None, name):
            return Credential(name, token.strip())
    return None


def store_credential(path: Path, credential: Credential) -> None:
    """Replace or append one line; best effort, because the token in hand works either way."""
    kept = [line for line in _lines(path) if line.partition(":")[0] != credential.user]
    text = "\n".join([*kept, f"{credential.user}:{credential.token}", ""])
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # mkstemp makes the file 0600 before anything is in it.
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except OSError as error:
        log.warning("credentials.not_saved", path=str(path), error=error.strerror)


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        log.warning("credentials.unreadable", path=str(path), error=type(error).__name__)
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]
