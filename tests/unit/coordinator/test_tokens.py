"""Tokens: what is accepted, and the whole corpus of what must not be."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from accounts.tokens import (
    ISSUER,
    MAX_LIFETIME,
    Claims,
    ExpiredToken,
    InvalidToken,
    audience_of,
    key_id,
    make_key_ring,
    mint,
    typ_of,
    verify,
    wrap,
)
from mitosis_protocol.enums import TokenKind

NOW = datetime(2025, 11, 11, 12, 0, 0, tzinfo=UTC)
PRIVATE = Ed25519PrivateKey.generate()
KEYS = make_key_ring(PRIVATE)
HOUR = timedelta(hours=1)


def token(kind: TokenKind = TokenKind.USER, lifetime: timedelta = HOUR) -> str:
    return mint(KEYS, kind=kind, subject="ada", generation=7, now=NOW, lifetime=lifetime)


def forged(
    *,
    key: Any = PRIVATE,
    algorithm: str = "EdDSA",
    headers: dict[str, Any] | None = None,
    drop: str = "",
    **claims: Any,
) -> str:
    """A token like ours with something changed."""
    second = int(NOW.timestamp())
    payload = {
        "iss": ISSUER,
        "aud": audience_of(TokenKind.USER),
        "sub": "ada",
        "jti": "1",
        "iat": second,
        "nbf": second,
        "exp": second + 3600,
        "gen": 7,
        **claims,
    }
    payload.pop(drop, None)
    head = {"typ": typ_of(TokenKind.USER), "kid": KEYS.signing_kid, **(headers or {})}
    return jwt.encode(payload, key, algorithm=algorithm, headers=head)


def check(text: str, kind: TokenKind = TokenKind.USER, now: datetime = NOW) -> Claims:
    return verify(KEYS, text, kind=kind, now=now)


@pytest.mark.parametrize("kind", TokenKind)
@pytest.mark.parametrize("form", [str, wrap])
def test_both_forms_of_every_kind_are_accepted(kind: TokenKind, form: Any) -> None:
    claims = check(form(token(kind)), kind)
    assert (claims.kind, claims.subject, claims.generation) == (kind, "ada", 7)
    assert claims.expires_at == NOW + HOUR


def test_the_wrapped_form_fits_a_line_of_the_credential_file() -> None:
    wrapped = wrap(token())
    assert not set(wrapped) & set(":\n .")
    assert base64.b64decode(wrapped, validate=True).decode() == token_of(wrapped)


def token_of(wrapped: str) -> str:
    return base64.b64decode(wrapped).decode()


def test_the_forged_helper_makes_valid_tokens_when_nothing_is_changed() -> None:
    assert check(forged()).subject == "ada"


@pytest.mark.parametrize("presented", TokenKind)
@pytest.mark.parametrize("wanted", TokenKind)
def test_a_kind_never_passes_for_another(presented: TokenKind, wanted: TokenKind) -> None:
    if presented is wanted:
        return
    with pytest.raises(InvalidToken):
        check(token(presented), wanted)


def test_lifetime_is_cut_to_the_cap() -> None:
    claims = check(token(lifetime=timedelta(days=400)))
    assert claims.expires_at - claims.issued_at == MAX_LIFETIME


def test_expiry_and_its_leeway() -> None:
    text = token()
    assert check(text, now=NOW + HOUR + timedelta(seconds=59)).subject == "ada"
    with pytest.raises(ExpiredToken):
        check(text, now=NOW + HOUR + timedelta(seconds=60))


def test_a_token_from_the_future_and_its_leeway() -> None:
    text = token()
    assert check(text, now=NOW - timedelta(seconds=60)).subject == "ada"
    with pytest.raises(InvalidToken):
        check(text, now=NOW - timedelta(seconds=61))


def test_a_second_key_is_accepted_while_it_is_on_the_ring() -> None:
    old = Ed25519PrivateKey.generate()
    old_token = mint(
        make_key_ring(old), kind=TokenKind.USER, subject="a", generation=1, now=NOW, lifetime=HOUR
    )
    both = make_key_ring(PRIVATE, old.public_key())
    assert verify(both, old_token, kind=TokenKind.USER, now=NOW).subject == "a"
    with pytest.raises(InvalidToken):
        check(old_token)


def _raw(header: dict[str, Any], payload: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(payload).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def _unsigned(algorithm: str) -> str:
    payload = jwt.decode(token(), options={"verify_signature": False})
    return _raw({"alg": algorithm, "typ": "mitosis-user", "kid": KEYS.signing_kid}, payload)


def _hs256_with_public_key() -> str:
    # The classic confusion: the public key, which everybody knows, taken as a shared secret.
    public = PRIVATE.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return forged(key=public, algorithm="HS256")


def _tampered(part: int) -> str:
    parts = token().split(".")
    flipped = "A" if parts[part][5] != "A" else "B"
    parts[part] = parts[part][:5] + flipped + parts[part][6:]
    return ".".join(parts)


def _with_payload_of_another() -> str:
    head, _, signature = token().split(".")
    other = forged(sub="root").split(".")[1]
    return f"{head}.{other}.{signature}"


second = int(NOW.timestamp())
BAD = {
    "empty": "",
    "not base64": "%%%",
    "base64 of nothing useful": base64.b64encode(b"hello").decode(),
    "base64 of binary": base64.b64encode(bytes(range(256))).decode(),
    "wrapped twice": wrap(wrap(token())),
    "unpadded wrap": wrap(token()).rstrip("=") + "A",
    "dots only": "..",
    "four parts": token() + ".e30",
    "huge": "a." * 50_000,
    "huge wrapped": base64.b64encode(b"a" * 50_000).decode(),
    "none": _unsigned("none"),
    "None": _unsigned("None"),
    "NONE": _unsigned("NONE"),
    "unsigned EdDSA": _unsigned("EdDSA"),
    "HS256 with the public key": _hs256_with_public_key(),
    "another key under our kid": forged(key=Ed25519PrivateKey.generate()),
    "Ed448 under our kid": forged(key=Ed448PrivateKey.generate()),
    "unknown kid": forged(headers={"kid": "0" * 16}),
    "kid of another key": forged(
        key=(stranger := Ed25519PrivateKey.generate()),
        headers={"kid": key_id(stranger.public_key())},
    ),
    "kid as path": forged(headers={"kid": "../../../dev/null"}),
    "kid as SQL": forged(headers={"kid": "x' UNION SELECT 'key' --"}),
    "no kid": _raw({"alg": "EdDSA", "typ": "mitosis-user"}, {}, b"x" * 64),
    "kid not text": _raw({"alg": "EdDSA", "typ": "mitosis-user", "kid": 5}, {}, b"x" * 64),
    "kid a list": _raw({"alg": "EdDSA", "typ": "mitosis-user", "kid": ["a"]}, {}, b"x" * 64),
    "crit": forged(headers={"crit": ["exp"]}),
    "header not an object": _raw([], {}, b"x" * 64),  # type: ignore[arg-type]
    "payload not an object": _raw({"alg": "EdDSA", "kid": KEYS.signing_kid}, [], b""),  # type: ignore[arg-type]
    "wrong typ": forged(headers={"typ": "mitosis-worker"}),
    "plain typ": forged(headers={"typ": "JWT"}),
    "no typ": forged(headers={"typ": None}),
    "wrong aud": forged(aud=audience_of(TokenKind.WORKER)),
    "aud list": forged(aud=[audience_of(TokenKind.USER), audience_of(TokenKind.WORKER)]),
    "wrong issuer": forged(iss="someone"),
    "sub not text": forged(sub=5),
    "gen text": forged(gen="7"),
    "gen true": forged(gen=True),
    "gen missing": forged(drop="gen"),
    "exp text": forged(exp="soon"),
    "exp fraction": forged(exp=second + 10.5),
    "exp beyond all calendars": forged(exp=10**18),
    "exp negative": forged(exp=-1),
    "beyond the cap": forged(exp=second + int(MAX_LIFETIME.total_seconds()) + 1),
    "expired": forged(iat=second - 9999, nbf=second - 9999, exp=second - 61),
    "not yet": forged(nbf=second + 61),
    "issued in the future": forged(iat=second + 61),
    "tampered header": _tampered(0),
    "tampered payload": _tampered(1),
    "tampered signature": _tampered(2),
    "payload of another": _with_payload_of_another(),
    **{
        f"{name} missing": forged(drop=name)
        for name in ("exp", "iat", "nbf", "iss", "aud", "sub", "jti")
    },
}


@pytest.mark.parametrize("text", list(BAD.values()), ids=list(BAD))
def test_bad_tokens_are_refused_raw_and_wrapped(text: str) -> None:
    with pytest.raises(InvalidToken):
        check(text)
    if text.isascii() and len(text) < 3000:
        with pytest.raises(InvalidToken):
            check(wrap(text))


def test_every_token_has_an_id_of_its_own() -> None:
    assert check(token()).token_id != check(token()).token_id
