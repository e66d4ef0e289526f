"""Passwords: Argon2id over the 16 raw MD5 bytes that the wire carries.

Existing clients never send the password itself, only its MD5 digest, so the stored hash is taken
over that digest; the console's form digests what was typed first. Used by models and services.
"""

import functools
import hashlib
import secrets
from typing import Any

from argon2 import PasswordHasher, Type, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError
from django.contrib.auth.hashers import BasePasswordHasher, make_password
from typing_extensions import override

ALGORITHM = "argon2_md5"
DIGEST_BYTES = 16
# 19 MiB, two passes, one lane: OWASP's Argon2id floor. About 20 ms a login, so a burst of logins on
# two cores starves nobody for long (Django's default takes 100 MiB for each).
_ARGON2 = PasswordHasher(
    time_cost=2, memory_cost=19_456, parallelism=1, hash_len=32, salt_len=16, type=Type.ID
)


def md5_of(plain: str) -> bytes:
    """The digest an existing client would send for this password."""
    return hashlib.md5(plain.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()


def encode_md5_password(digest: bytes, *, salt: bytes | None = None) -> str:
    if len(digest) != DIGEST_BYTES:
        raise ValueError("an MD5 digest has 16 bytes")
    return f"{ALGORITHM}{_ARGON2.hash(digest, salt=salt)}"


def check_md5_password(digest: bytes, encoded: str) -> bool:
    """Compare. A row without a usable password costs the same work as a wrong password."""
    algorithm, _, phc = encoded.partition("$")
    usable = algorithm == ALGORITHM
    try:
        _ARGON2.verify(f"${phc}" if usable else _decoy(), digest)
    except (VerificationError, InvalidHashError):
        return False
    return usable


def spend_like_a_check(digest: bytes) -> None:
    """Burn the work of one check, so that an unknown user answers as slowly as a known one."""
    check_md5_password(digest, "")


def needs_rehash(encoded: str) -> bool:
    """True when the stored hash was made with other parameters than today's."""
    _, _, phc = encoded.partition("$")
    return _ARGON2.check_needs_rehash(f"${phc}")


def encode_plain_password(plain: str | None) -> str:
    # Django's marker for "no password" belongs to no algorithm, so nothing ever matches it.
    return make_password(None) if plain is None else encode_md5_password(md5_of(plain))


def check_plain_password(plain: str, encoded: str) -> bool:
    return check_md5_password(md5_of(plain), encoded)


@functools.cache
def _decoy() -> str:
    return _ARGON2.hash(secrets.token_bytes(DIGEST_BYTES))


class Argon2Md5Hasher(BasePasswordHasher):
    """The same hash for Django: `PASSWORD_HASHERS`, the console's forms and hash summary."""

    algorithm = ALGORITHM

    @override
    def encode(self, password: str, salt: str) -> str:
        return encode_md5_password(md5_of(password), salt=salt.encode("ascii"))

    @override
    def verify(self, password: str, encoded: str) -> bool:
        return check_plain_password(password, encoded)

    @override
    def decode(self, encoded: str) -> dict[str, Any]:
        algorithm, _, phc = encoded.partition("$")
        parameters = extract_parameters(f"${phc}")
        return {
            "algorithm": algorithm,
            "hash": phc.rpartition("$")[2],
            "memory_cost": parameters.memory_cost,
            "parallelism": parameters.parallelism,
            "salt": phc.split("$")[-2],
            "time_cost": parameters.time_cost,
        }

    @override
    def safe_summary(self, encoded: str) -> dict[Any, Any]:
        decoded = self.decode(encoded)
        return {
            key: decoded[key] for key in ("algorithm", "memory_cost", "time_cost", "parallelism")
        }

    @override
    def must_update(self, encoded: str) -> bool:
        return needs_rehash(encoded)

    @override
    def harden_runtime(self, password: str, encoded: str) -> None:
        """Nothing to level out: every hash of this algorithm has the same parameters."""
