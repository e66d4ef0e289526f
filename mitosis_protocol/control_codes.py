"""Error codes and the worker's states on the control plane; stable for ever, as every code.

`WORKER_SESSION` is the machine of the worker's side. Imported by both ends of `/ws/workers`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from mitosis_protocol.coded_enum import CodedEnum


class ControlCode(StrEnum):
    """`E.AREA.PROBLEM`; peers branch on these, never on texts."""

    AUTH_INVALID_TOKEN = "E.AUTH.INVALID_TOKEN"  # noqa: S105 - an error code, not a secret
    AUTH_MTLS_REQUIRED = "E.AUTH.MTLS_REQUIRED"

    SESSION_STALE_BINDING = "E.SESSION.STALE_BINDING"  # the attempt is not this worker's any more
    SESSION_DENIED = "E.SESSION.DENIED"  # tenant, identity or order of messages
    SESSION_SUPERSEDED = "E.SESSION.SUPERSEDED"  # a newer session, or the lease was lost

    CMD_UNKNOWN = "E.CMD.UNKNOWN"  # a message type, or a node type, that this end does not know
    CMD_CONCURRENCY_VIOLATION = "E.CMD.CONCURRENCY_VIOLATION"
    DISPATCH_UNAVAILABLE = "E.DISPATCH.UNAVAILABLE"

    RESULT_DUPLICATE = "E.RESULT.DUPLICATE"
    RESULT_SEQ_GAP = "E.RESULT.SEQ_GAP"  # `expect` is the number to go on from

    PKG_INVALID = "E.PKG.INVALID"
    PKG_PERMISSION = "E.PKG.PERMISSION"

    PROTOCOL_MALFORMED = "E.PROTOCOL.MALFORMED"
    PROTOCOL_TOO_LARGE = "E.PROTOCOL.TOO_LARGE"
    PROTOCOL_VERSION = "E.PROTOCOL.VERSION"
    PROTOCOL_OVERLOAD = "E.PROTOCOL.OVERLOAD"

    INTERNAL = "E.INTERNAL"
    TIMEOUT = "E.TIMEOUT"


class WorkerSessionState(CodedEnum):
    """Where a worker is in the life of its session."""

    NEW = "NEW", 0
    HANDSHAKING = "HANDSHAKING", 1
    REGISTERED = "REGISTERED", 2
    HEARTBEATING = "HEARTBEATING", 3
    DRAINING = "DRAINING", 4
    CLOSED = "CLOSED", 5
    BACKOFF = "BACKOFF", 6


_S: Final = WorkerSessionState

# NEW connects and sends `handshake`; its ack leads to REGISTERED, which sends `register`; that
# ack leads to HEARTBEATING, where work arrives. Drain can be lifted again. Errors and lost
# connections go to BACKOFF and from there to NEW; CLOSED is the end of the process's wish to work.
WORKER_SESSION: Final[Mapping[WorkerSessionState, frozenset[WorkerSessionState]]] = {
    _S.NEW: frozenset({_S.HANDSHAKING, _S.BACKOFF, _S.CLOSED}),
    _S.HANDSHAKING: frozenset({_S.REGISTERED, _S.BACKOFF, _S.CLOSED}),
    _S.REGISTERED: frozenset({_S.HEARTBEATING, _S.BACKOFF, _S.CLOSED}),
    _S.HEARTBEATING: frozenset({_S.DRAINING, _S.BACKOFF, _S.CLOSED}),
    _S.DRAINING: frozenset({_S.HEARTBEATING, _S.BACKOFF, _S.CLOSED}),
    _S.CLOSED: frozenset(),
    _S.BACKOFF: frozenset({_S.NEW, _S.CLOSED}),
}
