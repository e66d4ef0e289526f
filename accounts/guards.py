"""Who may call a view at all: DRF permission classes and the typed caller of a request.

Group roles are not decided here but by the selectors, which know the object.
"""

from typing import TYPE_CHECKING

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from typing_extensions import override

from accounts.actors import Actor, user_actor
from accounts.models import User
from accounts.refusals import AccountRefused, HeaderRefused
from mitosis_protocol.errors import ErrorCode

if TYPE_CHECKING:
    # DRF loads its default permissions while it defines APIView: at run time that is a circle.
    from rest_framework.views import APIView


class UserRequired(BasePermission):
    """Any active user, by token or by browser session."""

    @override
    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not isinstance(request.user, User):
            raise HeaderRefused("an Authorization header is needed", code=ErrorCode.AUTH_MISSING)
        return True


class AdminRequired(UserRequired):
    """A user with the admin flag; group roles do not matter."""

    @override
    def has_permission(self, request: Request, view: "APIView") -> bool:
        super().has_permission(request, view)
        if not request.user.is_staff:
            raise AccountRefused
        return True


def current_user(request: Request) -> User:
    """The caller of a view behind UserRequired."""
    if not isinstance(request.user, User):
        raise TypeError("the view lacks UserRequired")
    return request.user


def current_actor(request: Request) -> Actor:
    """The same caller for the audit log."""
    return user_actor(current_user(request), request)
