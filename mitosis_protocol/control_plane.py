"""The frames of `/ws/workers`: one envelope for both directions, its `type` selects the payload.

`open_frame` checks size, then the envelope, then the payload; `seal` builds a frame. Who is bound
by what is in docs/control-plane.md. Imported by websocket (server) and nodeagent (worker).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from mitosis_protocol.codec import DecodeFailed, JsonCodec
from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import (
    Ack,
    CancelCommand,
    Dispatch,
    Drain,
    Error,
    Feedback,
    Handshake,
    Heartbeat,
    MessageId,
    Payload,
    PkgEvent,
    PkgInstall,
    PkgUninstall,
    Register,
    Result,
    Seq,
)
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.limits import MAX_FRAME_BYTES

ACK_BASE_S: Final = 0.2  # the first repeat of an unacked message; doubles
ACK_MAX_S: Final = 5.0
ACK_TRIES: Final = 6  # sendings in all


class MessageType(StrEnum):
    """Every `type` of an envelope."""

    HANDSHAKE = "handshake"
    REGISTER = "register"
    ACK = "ack"
    HEARTBEAT = "heartbeat"
    DISPATCH = "cmd.dispatch"
    DRAIN = "cmd.drain"
    CANCEL = "cmd.cancel"
    FEEDBACK = "feedback"
    RESULT = "result"
    ERROR = "error"
    PKG_INSTALL = "pkg.install"
    PKG_UNINSTALL = "pkg.uninstall"
    PKG_EVENT = "pkg.event"


PAYLOADS: Final[Mapping[MessageType, type[Payload]]] = {
    MessageType.HANDSHAKE: Handshake,
    MessageType.REGISTER: Register,
    MessageType.ACK: Ack,
    MessageType.HEARTBEAT: Heartbeat,
    MessageType.DISPATCH: Dispatch,
    MessageType.DRAIN: Drain,
    MessageType.CANCEL: CancelCommand,
    MessageType.FEEDBACK: Feedback,
    MessageType.RESULT: Result,
    MessageType.ERROR: Error,
    MessageType.PKG_INSTALL: PkgInstall,
    MessageType.PKG_UNINSTALL: PkgUninstall,
    MessageType.PKG_EVENT: PkgEvent,
}
TYPE_OF: Final[Mapping[type[Payload], MessageType]] = {
    payload: kind for kind, payload in PAYLOADS.items()
}

FromDirectWorker: TypeAlias = (
    Handshake | Register | Ack | Heartbeat | Feedback | Result | Error | PkgEvent
)
ToDirectWorker: TypeAlias = (
    Ack | Dispatch | Drain | CancelCommand | Error | PkgInstall | PkgUninstall
)

JsonText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Must name the token's owner; nothing is decided by it."""

    role: Literal["worker", "scheduler"]
    id: Annotated[str, Meta(min_length=1, max_length=128)]


class AckWish(msgspec.Struct, frozen=True, kw_only=True):
    request: bool = False


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every frame has. `corr` is the attempt as text; `seq` its number in the stream of that
    attempt and direction. `ts` is RFC 3339 and for people: nothing is decided by it.
    """

    type: MessageType
    id: MessageId
    ts: JsonText
    tenant: Annotated[str, Meta(min_length=1, max_length=255)]
    sender: Sender
    payload: msgspec.Raw
    corr: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    seq: Seq | None = None
    ack: AckWish | None = None
    flags: Annotated[list[JsonText], Meta(max_length=16)] = []  # reserved

    @property
    def wants_ack(self) -> bool:
        return self.ack is not None and self.ack.request


class Stamp(NamedTuple):
    """Who says it, when and under which id; a repeat of a message keeps its id."""

    id: str
    ts: str
    tenant: str
    sender: Sender


class Frame(NamedTuple):
    """An envelope and its payload, both valid."""

    envelope: Envelope
    payload: Payload


class FrameRefused(Exception):
    """The bytes are no frame; `error` is fit to be sent back."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class _Hint(msgspec.Struct):
    """All we want to know of a frame that is no message."""

    id: MessageId | None = None


_ENVELOPE: Final[JsonCodec[Envelope]] = JsonCodec(Envelope)
_HINT: Final = msgspec.json.Decoder(_Hint)
_DECODERS: Final[Mapping[MessageType, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(payload) for kind, payload in PAYLOADS.items()
}
_ENCODER: Final = msgspec.json.Encoder()


def open_frame(data: bytes | str) -> Frame:
    """The frame in `data`: envelope first, then its payload. Raises FrameRefused."""
    try:
        envelope = _ENVELOPE.decode(data)
    except DecodeFailed as failure:
        code = _code_of(failure)
        raise FrameRefused(
            Error(code=code, message=f"envelope: {failure.message}", for_id=_id_in(data))
        ) from failure
    try:
        payload = _DECODERS[envelope.type].decode(envelope.payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise FrameRefused(
            Error(
                code=ControlCode.PROTOCOL_MALFORMED,
                message=f"payload of {envelope.type}: {error}"[:1024],
                for_id=envelope.id,
            )
        ) from error
    return Frame(envelope, payload)


def seal(
    payload: Payload,
    stamp: Stamp,
    *,
    corr: str | None = None,
    seq: int | None = None,
    wants_ack: bool = False,
) -> str:
    """A frame with `payload`; a ValueError here is a bug of the sender, not of the peer."""
    envelope = Envelope(
        type=TYPE_OF[type(payload)],
        id=stamp.id,
        ts=stamp.ts,
        tenant=stamp.tenant,
        sender=stamp.sender,
        payload=msgspec.Raw(_ENCODER.encode(payload)),
        corr=corr,
        seq=seq,
        ack=AckWish(request=True) if wants_ack else None,
    )
    data = _ENCODER.encode(envelope)
    if len(data) > MAX_FRAME_BYTES:
        raise ValueError(f"the frame has {len(data)} bytes, at most {MAX_FRAME_BYTES} fit")
    return data.decode()


def retry_delay_s(tries: int, *, jitter: float) -> float:
    """How long to wait for the ack after so many sendings; `jitter` is in [0, 1)."""
    return min(ACK_MAX_S, ACK_BASE_S * 2.0 ** (tries - 1)) * (0.75 + 0.5 * jitter)


def _code_of(failure: DecodeFailed) -> ControlCode:
    if failure.code is ErrorCode.PROTOCOL_TOO_LARGE:
        return ControlCode.PROTOCOL_TOO_LARGE
    # msgspec's words for a value outside an enumeration; a test holds them.
    if failure.message.startswith("Invalid enum value") and failure.message.endswith("`$.type`"):
        return ControlCode.CMD_UNKNOWN
    return ControlCode.PROTOCOL_MALFORMED


def _id_in(data: bytes | str) -> str | None:
    try:
        return _HINT.decode(data).id
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
