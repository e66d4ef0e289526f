"""The errors domain code raises; the class is the policy (status, code, whether to try again).

Mapped to HTTP in core.drf and to error frames in websocket.outbound, and nowhere else. A bug is
not a DomainError: it propagates and becomes a 500.

DomainError
├─ InvalidInput 400
├─ AuthenticationFailed 401
├─ PermissionDenied 403
├─ NotFound 404
├─ Conflict 409 ─ AlreadyExists, InvalidTransition, StaleAttempt, LeaseLost, Superseded
├─ LimitExceeded 413 ─ TooLarge 413, Throttled 429, QuotaExceeded 403
└─ DependencyUnavailable 503 ─ DatabaseUnavailable, StorageUnavailable, ChannelLayerUnavailable
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import ClassVar

from mitosis_protocol.errors import ErrorCode, ErrorInfo


class DomainError(Exception):
    """Something the caller must be told. `message` is public; `extra` is merged into the body."""

    code: ErrorCode = ErrorCode.INTERNAL
    http_status: ClassVar[int] = HTTPStatus.INTERNAL_SERVER_ERROR
    retryable: ClassVar[bool] = False
    # Existing clients print `msg`; the existing server starts some of them with its error class.
    msg_prefix: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.extra: Mapping[str, object] = extra or {}
        if code is not None:
            self.code = code

    @property
    def msg(self) -> str:
        """The text existing clients expect under `msg`."""
        return f"{self.msg_prefix}{self.message}"

    def info(self) -> ErrorInfo:
        """The part of this error that goes into a frame."""
        return ErrorInfo(code=self.code, message=self.message, retryable=self.retryable)


class InvalidInput(DomainError):
    """The request breaks a rule; the message names the field and the rule."""

    code = ErrorCode.REQUEST_INVALID
    http_status = HTTPStatus.BAD_REQUEST
    msg_prefix = "Process request error: "


class AuthenticationFailed(DomainError):
    """No identity, or one that no longer holds."""

    code = ErrorCode.AUTH_INVALID_TOKEN
    http_status = HTTPStatus.UNAUTHORIZED
    msg_prefix = "Authentication error: "


class PermissionDenied(DomainError):
    """A known caller without the role this needs."""

    code = ErrorCode.AUTH_PERMISSION_DENIED
    http_status = HTTPStatus.FORBIDDEN
    msg_prefix = "Authentication error: "

    def __init__(
        self,
        message: str = "Permission denied",
        *,
        code: ErrorCode | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message, code=code, extra=extra)


class NotFound(DomainError):
    """Absent, or not visible to this caller: the two must be indistinguishable."""

    code = ErrorCode.OBJECT_NOT_FOUND
    http_status = HTTPStatus.NOT_FOUND


class Conflict(DomainError):
    """The request is fine, the present state is not."""

    code = ErrorCode.REQUEST_CONFLICT
    http_status = HTTPStatus.CONFLICT


class AlreadyExists(Conflict):
    """The name or key is taken."""

    code = ErrorCode.OBJECT_EXISTS


class InvalidTransition(Conflict):
    """The state machine has no such arrow from where the object is now."""

    code = ErrorCode.STATE_INVALID_TRANSITION


class StaleAttempt(Conflict):
    """A report for an attempt that was fenced off."""

    code = ErrorCode.TASK_STALE_ATTEMPT


class LeaseLost(Conflict):
    """The runner's lease ran out before this arrived."""

    code = ErrorCode.SESSION_LEASE_LOST


class Superseded(Conflict):
    """A newer session of the same runner took over."""

    code = ErrorCode.SESSION_SUPERSEDED


class LimitExceeded(DomainError):
    """More than a published limit allows."""

    code = ErrorCode.REQUEST_LIMIT_EXCEEDED
    http_status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class TooLarge(LimitExceeded):
    """Too many bytes."""

    code = ErrorCode.REQUEST_TOO_LARGE


class Throttled(LimitExceeded):
    """Too many requests; `retry_after_s` becomes the Retry-After header."""

    code = ErrorCode.REQUEST_THROTTLED
    http_status = HTTPStatus.TOO_MANY_REQUESTS
    retryable = True

    def __init__(
        self,
        message: str = "Too many requests",
        *,
        code: ErrorCode | None = None,
        extra: Mapping[str, object] | None = None,
        retry_after_s: int = 1,
    ) -> None:
        super().__init__(message, code=code, extra=extra)
        self.retry_after_s = retry_after_s


class QuotaExceeded(LimitExceeded):
    """A group's storage or a user's groups are used up; 403 as the existing server answers."""

    code = ErrorCode.QUOTA_EXCEEDED
    http_status = HTTPStatus.FORBIDDEN

    def __init__(
        self,
        message: str = "Resource quota exceeded",
        *,
        code: ErrorCode | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message, code=code, extra=extra)


class DependencyUnavailable(DomainError):
    """Something below us is away; the same request may work in a moment."""

    code = ErrorCode.DEPENDENCY_UNAVAILABLE
    http_status = HTTPStatus.SERVICE_UNAVAILABLE
    retryable = True


class DatabaseUnavailable(DependencyUnavailable):
    """`outcome_unknown`: the statement was sent and may have committed; look before retrying."""

    code = ErrorCode.DATABASE_UNAVAILABLE

    def __init__(
        self,
        message: str = "The database does not answer",
        *,
        code: ErrorCode | None = None,
        extra: Mapping[str, object] | None = None,
        outcome_unknown: bool = False,
    ) -> None:
        super().__init__(message, code=code, extra=extra)
        self.outcome_unknown = outcome_unknown


class StorageUnavailable(DependencyUnavailable):
    """The object store refused or timed out."""

    code = ErrorCode.STORAGE_UNAVAILABLE


class ChannelLayerUnavailable(DependencyUnavailable):
    """Redis is away. Pushes are hints, so only callers that need an answer raise this."""

    code = ErrorCode.CHANNEL_LAYER_UNAVAILABLE
