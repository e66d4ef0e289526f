"""Refusals that DRF itself has to understand while it authenticates and checks permissions.

DRF catches only its own exceptions there (the browsable API asks views what they would permit),
while clients must see our error bodies; so each class is both.
"""

from rest_framework.exceptions import APIException

from core.errors import AuthenticationFailed, DomainError, InvalidInput, PermissionDenied


class HeaderRefused(InvalidInput, APIException):
    """No usable Authorization header: 400, as existing clients know it."""


class TokenRefused(AuthenticationFailed, APIException):
    """A token that is not genuine, or no longer counts."""


class AccountRefused(PermissionDenied, APIException):
    """A known caller who may not do this."""


def for_framework(error: DomainError) -> DomainError:
    """The same refusal, as DRF can catch it."""
    classes = {
        InvalidInput: HeaderRefused,
        AuthenticationFailed: TokenRefused,
        PermissionDenied: AccountRefused,
    }
    known = classes.get(type(error))
    return error if known is None else known(error.message, code=error.code)
