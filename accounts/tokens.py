"""Bearer tokens: Ed25519 JWTs, one kind each for users, workers, managers and direct workers.

Pure: keys and the time come in as arguments, nothing is looked up. accounts.bearer feeds it;
whether a genuine token still counts (generation, state) is asked of the database by its callers.
"""

import base64
import binascii
import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mitosis_protocol.enums import TokenKind
from mitosis_protocol.limits import MAX_TOKEN_LIFETIME_S

ISSUER: Final = "mitosis"
ALGORITHM: Final = "EdDSA"
MAX_LIFETIME: Final = timedelta(seconds=MAX_TOKEN_LIFETIME_S)
LEEWAY: Final = timedelta(seconds=60)  # clocks of clients and of other coordinators differ a little
MAX_TOKEN_CHARS: Final = 4096  # ours have about 500; anything longer is not worth parsing
_REQUIRED_CLAIMS: Final = ["exp", "iat", "nbf", "iss", "aud", "sub", "jti"]


class InvalidToken(Exception):
    """The token cannot be trusted. The reason is for logs; clients only hear that it is invalid."""


class ExpiredToken(InvalidToken):
    """Genuine, but too old: the holder may refresh it or log in again."""


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The key that signs, and every public key that is accepted, by key id."""

    signing_kid: str
    signing_key: Ed25519PrivateKey
    public_keys: Mapping[str, Ed25519PublicKey]


@dataclass(frozen=True, slots=True)
class Claims:
    """What a verified token says."""

    kind: TokenKind
    subject: str
    generation: int
    token_id: str
    issued_at: datetime
    expires_at: datetime


def key_id(key: Ed25519PublicKey) -> str:
    """A name derived from the key itself, so two processes agree on it without talking."""
    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:16]


def make_key_ring(private: Ed25519PrivateKey, *others: Ed25519PublicKey) -> KeyRing:
    """A ring that signs with `private` and also accepts `others` (keys being rotated in or out)."""
    own = private.public_key()
    return KeyRing(
        signing_kid=key_id(own),
        signing_key=private,
        public_keys={key_id(key): key for key in (own, *others)},
    )


def typ_of(kind: TokenKind) -> str:
    """The `typ` header: with `audience_of`, what keeps one kind from passing for another."""
    return f"mitosis-{kind.value}"


def audience_of(kind: TokenKind) -> str:
    return f"mitosis:{kind.value}"


def mint(
    keys: KeyRing,
    *,
    kind: TokenKind,
    subject: str,
    generation: int,
    now: datetime,
    lifetime: timedelta,
) -> str:
    """Sign a compact JWT. A lifetime beyond the cap is cut to the cap."""
    issued = int(now.timestamp())
    payload = {
        "iss": ISSUER,
        "aud": audience_of(kind),
        "sub": subject,
        "jti": uuid.uuid4().hex,
        "iat": issued,
        "nbf": issued,
        "exp": issued + int(min(lifetime, MAX_LIFETIME).total_seconds()),
        "gen": generation,
    }
    headers = {"typ": typ_of(kind), "kid": keys.signing_kid}
    return jwt.encode(payload, keys.signing_key, algorithm=ALGORITHM, headers=headers)


def wrap(token: str) -> str:
    """The form existing clients keep in their credential file: no `:`, no newline, no dots."""
    return base64.b64encode(token.encode("ascii")).decode("ascii")


def unwrap(token: str) -> str:
    """The compact JWT inside either form."""
    if len(token) > MAX_TOKEN_CHARS:
        raise InvalidToken("too long")
    if "." in token:  # never in the base64 alphabet, always in a compact JWT
        return token
    try:
        return base64.b64decode(token, validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise InvalidToken("neither a JWT nor a wrapped JWT") from error


def verify(keys: KeyRing, token: str, *, kind: TokenKind, now: datetime) -> Claims:
    """Check signature, kind, audience, issuer and times of a token in either form."""
    compact = unwrap(token)
    try:
        key = _key_named_by(keys, compact)
        decoded = jwt.decode_complete(
            compact,
            key,
            algorithms=[ALGORITHM],
            audience=audience_of(kind),
            issuer=ISSUER,
            # The library reads the system clock; times are checked below against the given one.
            options={
                "require": _REQUIRED_CLAIMS,
                "strict_aud": True,
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
            },
        )
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise InvalidToken(type(error).__name__) from error
    if decoded["header"].get("typ") != typ_of(kind):
        raise InvalidToken("wrong typ")
    return _checked_claims(decoded["payload"], kind, now)


def _key_named_by(keys: KeyRing, compact: str) -> Ed25519PublicKey:
    kid = jwt.get_unverified_header(compact).get("kid")
    key = keys.public_keys.get(kid) if isinstance(kid, str) else None
    if key is None:
        raise InvalidToken("unknown key")
    return key


def _checked_claims(payload: Mapping[str, object], kind: TokenKind, now: datetime) -> Claims:
    issued = _time_claim(payload, "iat")
    not_before = _time_claim(payload, "nbf")
    expires = _time_claim(payload, "exp")
    if expires <= now - LEEWAY:
        raise ExpiredToken("expired")
    if max(issued, not_before) > now + LEEWAY:
        raise InvalidToken("not yet valid")
    if expires - issued > MAX_LIFETIME:
        raise InvalidToken("lifetime beyond the cap")
    subject, token_id, generation = payload["sub"], payload["jti"], payload.get("gen")
    if not isinstance(subject, str) or not isinstance(token_id, str):
        raise InvalidToken("subject and token id are strings")
    return Claims(
        kind=kind,
        subject=subject,
        generation=_whole(generation, "gen"),
        token_id=token_id,
        issued_at=issued,
        expires_at=expires,
    )


def _time_claim(payload: Mapping[str, object], name: str) -> datetime:
    try:
        return datetime.fromtimestamp(_whole(payload[name], name), UTC)
    except (OverflowError, OSError, ValueError) as error:
        raise InvalidToken(f"{name} is not a time") from error


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidToken(f"{name} is not a whole number")
    return value
