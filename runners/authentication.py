"""Who the runner behind a request or a socket is: worker, manager and direct tokens.

`authenticate_bearer` serves asynchronous views and WebSocket upgrades for every kind of token; the
DRF classes serve synchronous views. Whether a genuine token still counts: runners.standing.
"""

from typing import TYPE_CHECKING, ClassVar

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from typing_extensions import override

from accounts.authentication import authenticate_user, user_standing
from accounts.bearer import bind, read_claims
from accounts.identity import Identity
from accounts.refusals import HeaderRefused, for_framework
from core import clock
from core.errors import AuthenticationFailed, DomainError, PermissionDenied
from mitosis_protocol.enums import TokenKind
from mitosis_protocol.errors import ErrorCode
from runners.standing import runner_standing, runner_standing_in_thread

if TYPE_CHECKING:
    # DRF may load this module while it defines APIView: at run time that is a circle.
    from rest_framework.views import APIView


async def authenticate_bearer(header: str | None, kind: TokenKind) -> Identity:
    """The caller behind an Authorization header, who must present a token of `kind`.

    Raises InvalidInput (no usable header, 400), AuthenticationFailed (401), or PermissionDenied
    (a user who is not Active, 403).
    """
    if kind is TokenKind.USER:
        return await authenticate_user(header)
    claims = read_claims(header, kind)
    return bind(claims, await runner_standing(kind, claims.subject))


async def recheck(identity: Identity) -> None:
    """Whether an open socket may stay open; cheap enough for every few seconds.

    Raises AuthenticationFailed once the token expired or was revoked.
    """
    if identity.expires_at <= clock.now():
        raise AuthenticationFailed("Invalid token", code=ErrorCode.AUTH_EXPIRED_TOKEN)
    if identity.kind is TokenKind.USER:
        standing = await user_standing(identity.subject)
        if standing is not None and not standing.is_active:
            raise PermissionDenied
    else:
        standing = await runner_standing(identity.kind, identity.subject)
    if standing is None or standing.generation != identity.generation:
        raise AuthenticationFailed("Wrong credentials", code=ErrorCode.AUTH_REVOKED_TOKEN)


class RunnerPrincipal:
    """What `request.user` is on runner routes: authenticated, and no user of ours."""

    is_authenticated: ClassVar[bool] = True
    is_active: ClassVar[bool] = True
    is_staff: ClassVar[bool] = False

    def __init__(self, identity: Identity) -> None:
        self.identity = identity


class RunnerTokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer <token of this kind>`; subclasses name the kind."""

    kind: ClassVar[TokenKind]

    @override
    def authenticate(self, request: Request) -> tuple[RunnerPrincipal, Identity]:
        try:
            claims = read_claims(request.META.get("HTTP_AUTHORIZATION"), self.kind)
            identity = bind(claims, runner_standing_in_thread(self.kind, claims.subject))
        except DomainError as error:
            raise for_framework(error) from error
        return RunnerPrincipal(identity), identity

    @override
    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="mitosis"'


class WorkerTokenAuthentication(RunnerTokenAuthentication):
    kind = TokenKind.WORKER


class ManagerTokenAuthentication(RunnerTokenAuthentication):
    kind = TokenKind.MANAGER


class DirectTokenAuthentication(RunnerTokenAuthentication):
    kind = TokenKind.DIRECT


class RunnerRequired(BasePermission):
    """For views whose only authentication class is one of the above."""

    @override
    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not isinstance(request.user, RunnerPrincipal):
            raise HeaderRefused("an Authorization header is needed", code=ErrorCode.AUTH_MISSING)
        return True


def current_identity(request: Request) -> Identity:
    """The calling runner of a view behind RunnerRequired."""
    if not isinstance(request.user, RunnerPrincipal):
        raise TypeError("the view lacks RunnerRequired")
    return request.user.identity
