"""What the end of a socket, or a refused upgrade, means for the agent. Pure; used by link.

The close codes are the coordinator's (websocket.close_codes there): part of the protocol.
"""

from enum import Enum, auto
from typing import Final

from websockets.exceptions import ConnectionClosed, InvalidStatus

from mitosis_protocol.errors import ErrorCode

_PROTOCOL: Final = 4400
_AUTH: Final = 4401
_SUPERSEDED: Final = 4409
_TOO_LARGE: Final = 4413
_OVERLOAD: Final = 4429
_LEASE_LOST: Final = "lease lost"

_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403


class Verdict(Enum):
    """What to do next."""

    RETRY = auto()  # back off and connect again
    RENEW = auto()  # the token is not accepted: get another one first
    MAYBE_RENEW = auto()  # refused without a reason, which may be the token
    YIELD = auto()  # somebody else has our identity
    SLOW_DOWN = auto()  # we ask too much: a longer pause than usual
    MISMATCH = auto()  # we cannot speak with this coordinator


def of_close(closed: ConnectionClosed, last_error: ErrorCode | None) -> Verdict:
    """`last_error` is the code of the last error frame, which says what a code leaves open.

    So does the reason, but not every server passes it on; and the frame may be overtaken by the
    close. Either of the two is enough.
    """
    code = closed.rcvd.code if closed.rcvd is not None else None
    reason = closed.rcvd.reason if closed.rcvd is not None else ""
    if code == _SUPERSEDED and (
        last_error is ErrorCode.SESSION_LEASE_LOST or reason == _LEASE_LOST
    ):
        # Nobody took our place: we were silent for too long.
        return Verdict.RETRY
    return {
        _PROTOCOL: Verdict.MISMATCH,
        _AUTH: Verdict.RENEW,
        _SUPERSEDED: Verdict.YIELD,
        _OVERLOAD: Verdict.SLOW_DOWN,
    }.get(code or 0, Verdict.RETRY)


def of_refusal(refused: InvalidStatus) -> Verdict:
    """The answer to an upgrade."""
    status = refused.response.status_code
    if status == _UNAUTHORIZED:
        return Verdict.RENEW
    # Servers that cannot refuse with a reason answer 403 whatever it was.
    return Verdict.MAYBE_RENEW if status == _FORBIDDEN else Verdict.RETRY


def describe(closed: ConnectionClosed) -> str:
    """The end of a socket in one line."""
    if closed.rcvd is None:
        return "the connection broke"
    reason = f" ({closed.rcvd.reason})" if closed.rcvd.reason else ""
    name = {
        _PROTOCOL: "protocol refused", _AUTH: "token refused", _SUPERSEDED: "superseded",
        _TOO_LARGE: "frame too large", _OVERLOAD: "too many frames", 1012: "restarting",
    }.get(closed.rcvd.code, "closed")  # fmt: skip
    return f"{name}, code {closed.rcvd.code}{reason}"
