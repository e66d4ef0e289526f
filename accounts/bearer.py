"""From an Authorization header to verified claims; shared by HTTP views and WebSocket upgrades.

Says only that a token is genuine and of the right kind. Callers then ask the database whether its
subject still stands. Statuses are those existing clients know: no usable header is 400, not 401.
"""

import re
from datetime import timedelta

import structlog

from accounts.identity import Identity, Standing
from accounts.keys import key_ring
from accounts.tokens import Claims, ExpiredToken, InvalidToken, mint, verify
from core import clock
from core.errors import AuthenticationFailed, InvalidInput
from mitosis_protocol.enums import TokenKind
from mitosis_protocol.errors import ErrorCode

log = structlog.get_logger(__name__)

# The alphabet of RFC 6750; the length is checked before any decoding.
_BEARER = re.compile(r"\A[Bb]earer +([A-Za-z0-9\-._~+/]+=*)\Z")


def read_claims(header: str | None, kind: TokenKind) -> Claims:
    """Verify the token of an Authorization header; raises InvalidInput or AuthenticationFailed."""
    match = _BEARER.match(header or "")
    if match is None:
        raise InvalidInput(
            "the Authorization header has to be `Bearer <token>`", code=ErrorCode.AUTH_MISSING
        )
    try:
        return verify(key_ring(), match.group(1), kind=kind, now=clock.now())
    except ExpiredToken as error:
        raise AuthenticationFailed("Invalid token", code=ErrorCode.AUTH_EXPIRED_TOKEN) from error
    except InvalidToken as error:
        log.debug("token.refused", reason=str(error), kind=kind.value)
        raise AuthenticationFailed("Invalid token") from error


def bind(claims: Claims, standing: Standing | None) -> Identity:
    """The identity behind claims, if its subject exists and the token's generation is current."""
    if standing is None:
        raise AuthenticationFailed("Wrong credentials", code=ErrorCode.AUTH_WRONG_CREDENTIALS)
    if standing.generation != claims.generation:
        raise AuthenticationFailed("Wrong credentials", code=ErrorCode.AUTH_REVOKED_TOKEN)
    return Identity(
        kind=claims.kind,
        id=standing.id,
        subject=claims.subject,
        generation=claims.generation,
        expires_at=claims.expires_at,
    )


def issue(*, kind: TokenKind, subject: str, generation: int, lifetime_s: float) -> str:
    """A new compact token signed with this installation's key."""
    return mint(
        key_ring(),
        kind=kind,
        subject=subject,
        generation=generation,
        now=clock.now(),
        lifetime=timedelta(seconds=lifetime_s),
    )
