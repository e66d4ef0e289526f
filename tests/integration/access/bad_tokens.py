"""The corpus of tokens nobody may get in with: forged, spent, swapped, broken.

Each entry is made from a genuine subject of the kind a door asks for, so that the one thing that is
wrong with it is what it is named after. Used against HTTP routes and the manager socket.
"""

import base64
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from accounts.keys import key_ring
from accounts.tokens import ISSUER, MAX_LIFETIME, MAX_TOKEN_CHARS, audience_of, typ_of, wrap
from core import clock
from mitosis_protocol.enums import TokenKind

_HOUR: Final = 3600


class Forger:
    """Makes tokens like ours for one subject, with something changed."""

    def __init__(self, kind: TokenKind, subject: str, generation: int) -> None:
        self._kind = kind
        self._ring = key_ring()
        now = int(clock.now().timestamp())
        self._now = now
        self._claims: dict[str, Any] = {
            "iss": ISSUER, "aud": audience_of(kind), "sub": subject, "jti": "1",
            "iat": now, "nbf": now, "exp": now + _HOUR, "gen": generation,
        }  # fmt: skip
        self._head = {"typ": typ_of(kind), "kid": self._ring.signing_kid}

    def make(self, *, key: Any = None, head: dict[str, Any] | None = None, **claims: Any) -> str:
        """Signed with our own key unless told otherwise; None drops a member."""
        payload = {n: v for n, v in {**self._claims, **claims}.items() if v is not None}
        headers = {**self._head, **(head or {})}
        signer = self._ring.signing_key if key is None else key
        return jwt.encode(payload, signer, algorithm="EdDSA", headers=headers)

    def corpus(self) -> Iterator[tuple[str, str]]:
        yield from self._broken()
        yield from self._algorithms()
        yield from self._keys()
        yield from self._kinds()
        yield from self._times()
        yield from self._members()

    def _broken(self) -> Iterator[tuple[str, str]]:
        good = self.make()
        head, body, signature = good.split(".")
        yield "no signature", f"{head}.{body}."
        yield "two parts", f"{head}.{body}"
        yield "four parts", f"{good}.{signature}"
        yield "cut short", good[:-8]
        yield "a bit changed", f"{head}.{body}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"
        yield "another body", f"{head}.{_coded({**self._claims, 'gen': 10**6})}.{signature}"
        yield "wrapped twice", wrap(wrap(good))
        yield "wrapped and cut", wrap(good)[:-9]
        yield "huge", good + "A" * 100_000
        yield "just too long", "A" * (MAX_TOKEN_CHARS + 1)
        yield "only dots", "..."
        yield "no JSON inside", f"{head}.{_bytes(b'nonsense')}.{signature}"

    def _algorithms(self) -> Iterator[tuple[str, str]]:
        yield "alg none", f"{_coded({**self._head, 'alg': 'none'})}.{_coded(self._claims)}."
        for spelling in ("None", "NONE", "nOnE"):
            unsigned = f"{_coded({**self._head, 'alg': spelling})}.{_coded(self._claims)}."
            yield f"alg {spelling}", unsigned
        public = self._ring.signing_key.public_key()
        raw = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
        pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        for name, secret in (("raw", raw), ("PEM", pem), ("empty", b"")):
            yield f"HS256 with the public key, {name}", self._hs256(secret)

    def _hs256(self, secret: bytes) -> str:
        # By hand: the library refuses to sign with a public key, an attacker does not.
        text = f"{_coded({**self._head, 'alg': 'HS256'})}.{_coded(self._claims)}"
        digest = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
        return f"{text}.{_bytes(digest.sign(text.encode(), secret))}"

    def _keys(self) -> Iterator[tuple[str, str]]:
        stranger = Ed25519PrivateKey.generate()
        yield "a stranger's key under our kid", self.make(key=stranger)
        own = {"kid": "0" * 16, "jwk": {"kty": "OKP"}, "jku": "http://127.0.0.1:9/keys"}
        yield "a stranger's key that it brings along", self.make(key=stranger, head=own)
        for kid in ("", "nobody", "../../keys/private.pem", "' OR 1=1 --"):
            yield f"kid {kid!r}", self.make(head={"kid": kid})

    def _kinds(self) -> Iterator[tuple[str, str]]:
        for other in TokenKind:
            if other is self._kind:
                continue
            yield f"typ of {other.value}", self.make(head={"typ": typ_of(other)})
            yield f"aud of {other.value}", self.make(aud=audience_of(other))
            swapped = self.make(head={"typ": typ_of(other)}, aud=audience_of(other))
            yield f"a token for {other.value}", swapped
        yield "typ JWT", self.make(head={"typ": "JWT"})
        yield "many audiences", self.make(aud=[audience_of(kind) for kind in TokenKind])
        yield "another issuer", self.make(iss="elsewhere")

    def _times(self) -> Iterator[tuple[str, str]]:
        now, cap = self._now, int(MAX_LIFETIME / timedelta(seconds=1))
        yield "expired", self.make(iat=now - 2 * _HOUR, nbf=now - 2 * _HOUR, exp=now - _HOUR)
        yield "not yet", self.make(nbf=now + _HOUR)
        yield "from tomorrow", self.make(iat=now + 24 * _HOUR, exp=now + 25 * _HOUR)
        yield "for ever", self.make(exp=now + cap + _HOUR)
        yield "exp beyond time", self.make(exp=10**18)
        yield "exp as text", self.make(exp=str(now + _HOUR))
        yield "exp as a fraction", self.make(exp=now + 0.5)

    def _members(self) -> Iterator[tuple[str, str]]:
        for name in ("exp", "iat", "nbf", "iss", "aud", "sub", "jti", "gen"):
            yield f"without {name}", self.make(**{name: None})
        generation = self._claims["gen"]
        yield "an older generation", self.make(gen=generation - 1)
        yield "a later generation", self.make(gen=generation + 1)
        yield "the generation as text", self.make(gen=str(generation))
        yield "the generation as a flag", self.make(gen=True)
        yield "an unknown subject", self.make(sub="00000000-0000-4000-8000-000000000000")
        yield "an empty subject", self.make(sub="")
        yield "a subject with a NUL", self.make(sub="a\x00b")
        yield "a subject that is a list", self._signed_text('"sub":', '"sub":[1],"was":')
        # The last one of two equal members wins in most readers: it must not be another's.
        yield "exp twice", self._signed_text('"gen":', f'"exp":{self._now - 9 * _HOUR},"gen":')

    def _signed_text(self, old: str, new: str) -> str:
        body = json.dumps(self._claims, separators=(",", ":")).replace(old, new)
        head = {**self._head, "alg": "EdDSA"}
        text = f"{_coded(head)}.{_bytes(body.encode())}"
        return f"{text}.{_bytes(self._ring.signing_key.sign(text.encode()))}"


def _coded(value: object) -> str:
    return _bytes(json.dumps(value, separators=(",", ":")).encode())


def _bytes(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
