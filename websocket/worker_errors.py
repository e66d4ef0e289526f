"""Our errors as the control plane spells them, and which of them end a socket."""

from collections.abc import Mapping
from typing import Final

from core.errors import AuthenticationFailed, DomainError, PermissionDenied, Superseded
from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.errors import ErrorCode
from websocket.close_codes import CloseCode

_CODES: Final[Mapping[str, ControlCode]] = {
    "auth": ControlCode.AUTH_INVALID_TOKEN,
    "session": ControlCode.SESSION_SUPERSEDED,
    "dependency": ControlCode.INTERNAL,
    "package": ControlCode.PKG_INVALID,
    "protocol": ControlCode.SESSION_DENIED,
}
_EXACT: Final[Mapping[ErrorCode, ControlCode]] = {
    ErrorCode.AUTH_MTLS_REQUIRED: ControlCode.AUTH_MTLS_REQUIRED,
    ErrorCode.AUTH_PERMISSION_DENIED: ControlCode.SESSION_DENIED,
    ErrorCode.AUTH_CONSENT_PENDING: ControlCode.SESSION_DENIED,
    ErrorCode.SESSION_STALE_BINDING: ControlCode.SESSION_STALE_BINDING,
    ErrorCode.SESSION_DENIED: ControlCode.SESSION_DENIED,
    ErrorCode.TASK_STALE_ATTEMPT: ControlCode.SESSION_STALE_BINDING,
    ErrorCode.PROTOCOL_MISMATCH: ControlCode.PROTOCOL_VERSION,
    ErrorCode.PACKAGE_NOT_PERMITTED: ControlCode.PKG_PERMISSION,
    ErrorCode.REQUEST_TIMEOUT: ControlCode.TIMEOUT,
    ErrorCode.INTERNAL: ControlCode.INTERNAL,
}


def code_of(code: ErrorCode) -> ControlCode:
    """The control plane's word for one of our codes."""
    found = _EXACT.get(code) or _CODES.get(code.value.partition(".")[0])
    return found or ControlCode.PROTOCOL_MALFORMED


def close_code_of(error: DomainError) -> CloseCode | None:
    """How the socket ends for this error; None: it lives."""
    if isinstance(error, Superseded):
        return CloseCode.SUPERSEDED
    if isinstance(error, AuthenticationFailed):
        return CloseCode.AUTH
    return CloseCode.PROTOCOL if isinstance(error, PermissionDenied) else None
