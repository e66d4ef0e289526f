"""Exit statuses of `mitosis`, for scripts; documented in docs/cli.md. Stable."""

from typing import Final

import msgspec

from mitosis_client.errors import (
    AuthenticationFailed,
    ConfigError,
    Conflict,
    CoordinatorUnreachable,
    InvalidRequest,
    NotFound,
    NotLoggedIn,
    PermissionDenied,
    WaitTimedOut,
)
from mitosis_protocol.errors import InvalidValue

OK: Final = 0
FAILURE: Final = 1  # also: tasks that were waited for did not all succeed
USAGE: Final = 2
NOT_FOUND: Final = 3
NOT_PERMITTED: Final = 4
UNREACHABLE: Final = 5
CONFLICT: Final = 6
TIMED_OUT: Final = 124  # as timeout(1)
INTERRUPTED: Final = 130

_BY_ERROR: Final[tuple[tuple[type[Exception], int], ...]] = (
    (NotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (InvalidRequest, USAGE),
    (ConfigError, USAGE),
    (InvalidValue, USAGE),
    (msgspec.ValidationError, USAGE),
    (NotLoggedIn, NOT_PERMITTED),
    (AuthenticationFailed, NOT_PERMITTED),
    (PermissionDenied, NOT_PERMITTED),
    (CoordinatorUnreachable, UNREACHABLE),
    (WaitTimedOut, TIMED_OUT),
)


def code_of(error: Exception) -> int:
    """The status an error ends the program with."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), FAILURE)
