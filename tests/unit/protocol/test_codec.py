"""Whatever bytes arrive, the codec answers with a message or a typed refusal."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis_protocol.codec import DecodeFailed, JsonCodec, MsgpackCodec
from mitosis_protocol.errors import ErrorCode, ErrorInfo


class Ping(msgspec.Struct, tag="ping", tag_field="type"):
    text: str
    anything: Any = None


class Stop(msgspec.Struct, tag="stop", tag_field="type"):
    reason: str = ""


JSON: JsonCodec[Ping | Stop] = JsonCodec(Ping | Stop, max_bytes=4096)
MSGPACK: MsgpackCodec[Ping | Stop] = MsgpackCodec(Ping | Stop, max_bytes=4096)


def refusal_of(codec, data):
    with pytest.raises(DecodeFailed) as refusal:
        codec.decode(data)
    assert refusal.value.info() == ErrorInfo(code=refusal.value.code, message=str(refusal.value))
    return refusal.value.code


@pytest.mark.parametrize("codec", [JSON, MSGPACK])
def test_messages_survive_the_round_trip(codec):
    for message in (Ping("a\N{SNOWMAN}b"), Stop("why")):
        assert codec.decode(codec.encode(message)) == message


def test_text_frames_are_taken_as_well():
    assert JSON.decode('{"type": "ping", "text": "\N{SNOWMAN}"}') == Ping("\N{SNOWMAN}")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b'{"type": "ping"}',
        b'{"type": "ping", "text": 1}',
        b'{"text": "x"}',
        b'{"type": "ping", "text": NaN}',
        b'{"type": "ping", "text": "\xff"}',
        b'{"type": "ping", "text": "\xed\xa0\x80"}',
        b'{"type": "ping", "text": "\\ud800"}',
        b'{"type": "ping", "text": "\\u0000"}',
        b'{"type": "ping", "text": "\\\\\\u0000"}',
        b'{"type": "ping", "text": "x", "anything": ' + b"[" * 2000 + b"]" * 2000 + b"}",
        b'{"type": "ping", "text": "x", "unknown": ' + b"[" * 2000 + b"]" * 2000 + b"}",
        b'{"type": "ping", "text": "x", "anything": 1e999}',
        '{"type": "ping", "text": "\ud800"}',
    ],
)
def test_malformed_frames_are_refused_as_malformed(data):
    assert refusal_of(JSON, data) is ErrorCode.PROTOCOL_MALFORMED


def test_an_escaped_backslash_before_u0000_is_no_nul():
    assert JSON.decode(b'{"type": "ping", "text": "\\\\u0000"}') == Ping("\\u0000")


def test_an_unknown_type_has_a_code_of_its_own():
    assert refusal_of(JSON, b'{"type": "dance"}') is ErrorCode.PROTOCOL_UNKNOWN_TYPE
    assert refusal_of(MSGPACK, msgspec.msgpack.encode({"type": "dance"})) is (
        ErrorCode.PROTOCOL_UNKNOWN_TYPE
    )


@pytest.mark.parametrize("codec", [JSON, MSGPACK])
def test_the_size_is_checked_before_anything_is_decoded(codec):
    assert refusal_of(codec, b"x" * 4097) is ErrorCode.PROTOCOL_TOO_LARGE
    assert refusal_of(codec, b"x" * 4096) is ErrorCode.PROTOCOL_MALFORMED


@pytest.mark.parametrize("codec", [JSON, MSGPACK])
def test_a_message_too_large_to_be_read_is_not_written(codec):
    with pytest.raises(ValueError, match="at most 4096"):
        codec.encode(Ping("x" * 4096))


def test_size_counts_bytes_and_not_characters():
    text = "\N{SNOWMAN}" * 1400
    assert refusal_of(JSON, '{"type": "ping", "text": "' + text + '"}') is (
        ErrorCode.PROTOCOL_TOO_LARGE
    )


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data):
    for codec in (JSON, MSGPACK):
        with contextlib.suppress(DecodeFailed):
            assert isinstance(codec.decode(data), Ping | Stop)


@given(st.text())
def test_any_text_survives_unless_it_holds_a_nul(text):
    try:
        frame = JSON.encode(Ping(text))
    except (ValueError, UnicodeEncodeError):
        return
    if "\0" in text:
        assert refusal_of(JSON, frame) is ErrorCode.PROTOCOL_MALFORMED
    else:
        assert JSON.decode(frame) == Ping(text)
