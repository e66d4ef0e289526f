"""Who the user behind a request is: bearer tokens for programs, sessions for browsers.

`UserTokenAuthentication` goes first in every DRF view, SessionAuthentication second. Asynchronous
views call `authenticate_user`. Users are looked up every time, so a rotation acts at once.
"""

from typing import Final

from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.request import Request
from typing_extensions import override

from accounts.bearer import bind, read_claims
from accounts.identity import Identity, Standing
from accounts.models import User
from accounts.refusals import for_framework
from accounts.selectors import find_user
from core.errors import DomainError, PermissionDenied
from core.pg import get_pool, load_sql
from mitosis_protocol.enums import TokenKind, UserState
from mitosis_protocol.names import is_valid_name

_STANDING: Final = load_sql("accounts", "user_standing")


class UserTokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer <user token>`; without the header the next class is asked."""

    @override
    def authenticate(self, request: Request) -> tuple[User, Identity] | None:
        header = request.META.get("HTTP_AUTHORIZATION")
        if header is None:
            return None
        try:
            return _user_behind(header)
        except DomainError as error:
            raise for_framework(error) from error

    @override
    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="mitosis"'


USER_AUTHENTICATION: Final = (UserTokenAuthentication, SessionAuthentication)


async def authenticate_user(header: str | None) -> Identity:
    """The user behind an Authorization header, for asynchronous views.

    Raises InvalidInput (no header), AuthenticationFailed, or PermissionDenied (not Active).
    """
    claims = read_claims(header, TokenKind.USER)
    standing = await user_standing(claims.subject)
    return _active(bind(claims, standing), standing)


async def user_standing(username: str) -> Standing | None:
    """Which tokens of a user count now; None for a name nobody has."""
    if not is_valid_name(username):  # keeps a NUL away from the driver
        return None
    rows = await get_pool().fetch(_STANDING, {"username": username})
    if not rows:
        return None
    [(user_id, generation, state)] = rows
    is_active = UserState.from_code(state) is UserState.ACTIVE
    return Standing(id=user_id, generation=generation, is_active=is_active)


def _user_behind(header: str) -> tuple[User, Identity]:
    claims = read_claims(header, TokenKind.USER)
    user = find_user(claims.subject)
    if user is None:
        bind(claims, None)  # raises the same refusal as a stale token
        raise AssertionError
    standing = Standing(id=user.pk, generation=user.token_generation, is_active=user.is_active)
    return user, _active(bind(claims, standing), standing)


def _active(identity: Identity, standing: Standing | None) -> Identity:
    if standing is None or not standing.is_active:
        raise PermissionDenied
    return identity
