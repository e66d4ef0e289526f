"""Errors as they cross a wire: stable string codes and the struct that carries them.

`core.errors` (HTTP, WebSocket) and the agent map their exceptions to these. A code, once shipped,
keeps its meaning for ever; texts may change.
"""

from enum import StrEnum

import msgspec


class InvalidValue(ValueError):
    """A text or number from outside breaks a rule of this package; the message says which."""


class ErrorCode(StrEnum):
    """`area.problem`; clients branch on these, never on texts."""

    INTERNAL = "internal"

    REQUEST_INVALID = "request.invalid"
    REQUEST_MALFORMED_JSON = "request.malformed_json"
    REQUEST_UNSUPPORTED_MEDIA_TYPE = "request.unsupported_media_type"
    REQUEST_NOT_ACCEPTABLE = "request.not_acceptable"
    REQUEST_METHOD_NOT_ALLOWED = "request.method_not_allowed"
    REQUEST_TOO_LARGE = "request.too_large"
    REQUEST_THROTTLED = "request.throttled"
    REQUEST_LIMIT_EXCEEDED = "request.limit_exceeded"
    REQUEST_NOT_FOUND = "request.not_found"
    REQUEST_CONFLICT = "request.conflict"
    REQUEST_TIMEOUT = "request.timeout"
    IDEMPOTENCY_MISMATCH = "request.idempotency_mismatch"

    AUTH_MISSING = "auth.missing"
    AUTH_INVALID_TOKEN = "auth.invalid_token"  # noqa: S105 - an error code, not a secret
    AUTH_EXPIRED_TOKEN = "auth.expired_token"  # noqa: S105 - an error code, not a secret
    AUTH_REVOKED_TOKEN = "auth.revoked_token"  # noqa: S105 - an error code, not a secret
    AUTH_WRONG_TOKEN_KIND = "auth.wrong_token_kind"  # noqa: S105 - an error code, not a secret
    AUTH_WRONG_CREDENTIALS = "auth.wrong_credentials"
    AUTH_PERMISSION_DENIED = "auth.permission_denied"
    AUTH_MTLS_REQUIRED = "auth.mtls_required"
    AUTH_CONSENT_PENDING = "auth.consent_pending"

    SESSION_SUPERSEDED = "session.superseded"
    SESSION_LEASE_LOST = "session.lease_lost"
    SESSION_STALE_BINDING = "session.stale_binding"
    SESSION_DENIED = "session.denied"
    SESSION_TOO_MANY_IN_FLIGHT = "session.too_many_in_flight"

    PROTOCOL_MISMATCH = "protocol.version_mismatch"
    PROTOCOL_UNKNOWN_TYPE = "protocol.unknown_type"
    PROTOCOL_MALFORMED = "protocol.malformed"
    PROTOCOL_TOO_LARGE = "protocol.too_large"
    PROTOCOL_SEQUENCE_GAP = "protocol.sequence_gap"
    PROTOCOL_DUPLICATE = "protocol.duplicate"
    PROTOCOL_IDENTITY_MISMATCH = "protocol.identity_mismatch"

    OBJECT_NOT_FOUND = "object.not_found"
    OBJECT_EXISTS = "object.exists"

    STATE_INVALID_TRANSITION = "state.invalid_transition"

    TASK_STALE_ATTEMPT = "task.stale_attempt"
    TASK_NOT_READY = "task.not_ready"
    TASK_CONCURRENCY_VIOLATION = "task.concurrency_violation"

    SUITE_CANCELLED = "suite.cancelled"
    SUITE_NOT_EMPTY = "suite.not_empty"
    SUITES_DISABLED = "suite.disabled"
    SUITE_BLOCKED = "suite.blocked"

    QUOTA_EXCEEDED = "quota.exceeded"

    PACKAGE_INVALID = "package.invalid"
    PACKAGE_NOT_PERMITTED = "package.not_permitted"

    DEPENDENCY_UNAVAILABLE = "dependency.unavailable"
    DATABASE_UNAVAILABLE = "dependency.database"
    STORAGE_UNAVAILABLE = "dependency.storage"
    CHANNEL_LAYER_UNAVAILABLE = "dependency.channel_layer"


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an error frame and an error body have in common."""

    code: ErrorCode
    message: str
    retryable: bool = False
