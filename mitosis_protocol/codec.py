"""Bytes to messages and back: size first, then strict decoding, then a typed failure.

One module-level codec per union (`TASK_SPEC` here, the message unions beside their types). JSON on
sockets, MessagePack between agent and workers. Whatever a stranger sends, `decode` either returns
a valid message or raises DecodeFailed; the socket lives on.
"""

import re
from typing import Any, Final, Generic, TypeVar

import msgspec

from mitosis_protocol.errors import ErrorCode, ErrorInfo
from mitosis_protocol.limits import MAX_FRAME_BYTES, MAX_SPEC_BYTES
from mitosis_protocol.specs import TaskSpec

Message = TypeVar("Message")

# An escaped NUL: `\u0000` after an even number of backslashes.
_ESCAPED_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class DecodeFailed(Exception):
    """The bytes are not a message; `code` and `message` are fit to be sent back."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def info(self) -> ErrorInfo:
        """The failure as it goes into an error frame."""
        return ErrorInfo(code=self.code, message=self.message)


class JsonCodec(Generic[Message]):
    """JSON for one type or tagged union."""

    def __init__(self, kind: Any, *, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(kind)
        self._encoder = msgspec.json.Encoder()
        self.kind = kind
        self.max_bytes = max_bytes

    def decode(self, data: bytes | str) -> Message:
        """The message in `data`; raises DecodeFailed."""
        raw = _bytes(data)
        _check_size(raw, self.max_bytes)
        # jsonb refuses NUL, so one in any text would fail far from its sender.
        if b"\\u0000" in raw and _ESCAPED_NUL.search(raw) is not None:
            raise DecodeFailed(ErrorCode.PROTOCOL_MALFORMED, "a string holds a NUL")
        return _decode(self._decoder, raw)

    def encode(self, message: Message) -> bytes:
        """The bytes of `message`; a ValueError here is a bug of the sender, not of the peer."""
        data = self._encoder.encode(message)
        if len(data) > self.max_bytes:
            raise ValueError(f"the message has {len(data)} bytes, at most {self.max_bytes} fit")
        return data


class MsgpackCodec(Generic[Message]):
    """MessagePack for one type or tagged union."""

    def __init__(self, kind: Any, *, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder()
        self.kind = kind
        self.max_bytes = max_bytes

    def decode(self, data: bytes) -> Message:
        """The message in `data`; raises DecodeFailed."""
        _check_size(data, self.max_bytes)
        return _decode(self._decoder, data)

    def encode(self, message: Message) -> bytes:
        """The bytes of `message`; a ValueError here is a bug of the sender, not of the peer."""
        data = self._encoder.encode(message)
        if len(data) > self.max_bytes:
            raise ValueError(f"the message has {len(data)} bytes, at most {self.max_bytes} fit")
        return data


def _decode(
    decoder: msgspec.json.Decoder[Message] | msgspec.msgpack.Decoder[Message], raw: bytes
) -> Message:
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise DecodeFailed(_code_of(str(error)), str(error)) from error
    except msgspec.DecodeError as error:
        raise DecodeFailed(ErrorCode.PROTOCOL_MALFORMED, str(error)) from error
    except UnicodeDecodeError as error:
        raise DecodeFailed(ErrorCode.PROTOCOL_MALFORMED, "a string is not UTF-8") from error
    except RecursionError:
        raise DecodeFailed(ErrorCode.PROTOCOL_MALFORMED, "nested too deeply") from None


def _code_of(reason: str) -> ErrorCode:
    # msgspec's words for a tag outside the union; a test holds them.
    if reason.startswith("Invalid value") and reason.endswith("`$.type`"):
        return ErrorCode.PROTOCOL_UNKNOWN_TYPE
    return ErrorCode.PROTOCOL_MALFORMED


def _check_size(data: bytes, max_bytes: int) -> None:
    if len(data) > max_bytes:
        raise DecodeFailed(
            ErrorCode.PROTOCOL_TOO_LARGE, f"{len(data)} bytes, at most {max_bytes} are taken"
        )


def _bytes(data: bytes | str) -> bytes:
    if isinstance(data, bytes):
        return data
    try:
        return data.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DecodeFailed(ErrorCode.PROTOCOL_MALFORMED, "half of a surrogate pair") from error


TASK_SPEC: Final[JsonCodec[TaskSpec]] = JsonCodec(TaskSpec, max_bytes=MAX_SPEC_BYTES)
