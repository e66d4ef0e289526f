"""Who this agent is to its coordinator: uuid and tokens, in one private file (0600).

Replaced as a whole and synced before the old tokens are let go, so that a crash or a power cut at
any point leaves a usable identity. Read and written by nodeagent.coordinator.tokens.
"""

import os
import tempfile
from datetime import datetime
from pathlib import Path
from uuid import UUID

import msgspec
from typing_extensions import override

from nodeagent.errors import HostUnusable


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """The access token opens sockets; the refresh token works once and buys the next pair.

    `lifetime_s` is by the coordinator's clock alone, so ours may be wrong.
    """

    token: str
    refresh_token: str
    lifetime_s: float
    issued_at: datetime  # by our clock: only compared with our clock

    @override
    def __repr__(self) -> str:
        return f"Tokens(issued_at={self.issued_at}, lifetime_s={self.lifetime_s})"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One registration with one coordinator."""

    manager_uuid: UUID
    coordinator: str
    tokens: Tokens


def load_identity(path: Path) -> Identity | None:
    """The stored identity, or None if there is none yet. Raises HostUnusable if it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Identity)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not an identity file"
        raise HostUnusable(f"{path}: {reason}; remove it to register anew") from error


def store_identity(path: Path, identity: Identity) -> None:
    """Replace the file durably. Raises HostUnusable: without it a restart could not come back."""
    try:
        # mkstemp makes the file 0600 before anything is in it.
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(identity))
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)
    except OSError as error:
        raise HostUnusable(f"cannot write {path}: {error.strerror}") from error


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
