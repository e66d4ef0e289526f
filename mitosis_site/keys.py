"""Secrets that the coordinator makes for itself: the token signing key pair and Django's secret.

Settings load them, so this module is Django-free and any entry point may be the first one to run.
Files are created once, under a file lock, each by temp file, fsync and rename: a crash at any
moment leaves either no file or a whole one.
"""

import contextlib
import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PRIVATE_KEY_FILE: Final = "private.pem"
PUBLIC_KEY_FILE: Final = "public.pem"
SECRET_FILE: Final = "django_secret"  # noqa: S105 - a file name
LOCK_FILE: Final = ".lock"

# 64 bytes: above the 50 characters that Django's deployment check asks for, and 512 bits.
SECRET_BYTES: Final = 64


class KeysError(Exception):
    """The key directory cannot be used; the message names the file and the reason."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What settings need. Never printed."""

    private_pem: bytes = field(repr=False)
    public_pem: bytes
    django_secret: str = field(repr=False)


def ephemeral_keys() -> Keys:
    """Keys that die with the process, for static tools and tests."""
    private_pem = _new_private_pem()
    return Keys(private_pem, _public_pem(private_pem), secrets.token_urlsafe(SECRET_BYTES))


def load_or_create_keys(directory: Path) -> Keys:
    """Read the keys, making what is absent. Safe to call from many processes at once."""
    try:
        complete = _load_complete(directory)
        if complete is not None:
            return complete
        # 0711: workers of other users never need to list it, the public key stays reachable.
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        with _locked(directory / LOCK_FILE):
            return _load_or_create(directory)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise KeysError(f"{error.filename or directory}: {reason}") from error
    except ValueError as error:
        raise KeysError(f"{directory / PRIVATE_KEY_FILE}: not an Ed25519 key") from error


def write_atomically(path: Path, content: bytes, *, mode: int) -> None:
    """Put a whole file in place or none; it is on disk when this returns."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)  # noqa: PTH105 - the same call on str, one rename(2)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    _sync_directory(path.parent)


def _load_complete(directory: Path) -> Keys | None:
    """Keys that lack nothing are only read: a mounted secret cannot be written, nor locked."""
    paths = [directory / name for name in (PRIVATE_KEY_FILE, PUBLIC_KEY_FILE, SECRET_FILE)]
    if not all(path.exists() for path in paths):
        return None
    private_pem, public_pem, secret = (path.read_bytes() for path in paths)
    if public_pem != _public_pem(private_pem):
        return None
    return Keys(private_pem, public_pem, secret.decode().strip())


def _load_or_create(directory: Path) -> Keys:
    private_path = directory / PRIVATE_KEY_FILE
    public_path = directory / PUBLIC_KEY_FILE
    secret_path = directory / SECRET_FILE
    if not private_path.exists():
        write_atomically(private_path, _new_private_pem(), mode=0o600)
    private_pem = private_path.read_bytes()
    public_pem = _public_pem(private_pem)
    # Derived, so a crash between the two files, or a swapped private key, heals itself.
    if not public_path.exists() or public_path.read_bytes() != public_pem:
        write_atomically(public_path, public_pem, mode=0o644)
    if not secret_path.exists():
        secret = secrets.token_urlsafe(SECRET_BYTES)
        write_atomically(secret_path, secret.encode(), mode=0o600)
    return Keys(private_pem, public_pem, secret_path.read_text().strip())


def _new_private_pem() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _public_pem(private_pem: bytes) -> bytes:
    key = serialization.load_pem_private_key(private_pem, password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("the private key is not Ed25519")  # noqa: TRY004 - wrong file, not type
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    # Opened close-on-exec (Python's default), so no child can keep the lock after our death.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
