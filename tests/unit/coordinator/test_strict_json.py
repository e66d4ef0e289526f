"""JSON from strangers: what PostgreSQL, Python or the next reader would choke on is refused."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidInput
from core.strict_json import loads
from mitosis_protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"{}x", "Extra data"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b"1e999", "too large"),
        (b"-1e999", "too large"),
        (b"9223372036854775808", "64 bits"),
        (b"-9223372036854775809", "64 bits"),
        (b"1" * 5000, "64 bits"),
        (b'{"a": 1, "a": 1}', "'a' is given twice"),
        (b'[{"b": {"a": 1, "c": 2, "a": 3}}]', "'a' is given twice"),
        (b'{"a": 1, "\\u0061": 2}', "'a' is given twice"),
        (b'"\\u0000"', "NUL"),
        (b'{"\\u0000": 1}', "NUL"),
        (b'["\x00"]', "control character"),
        (b'"\\ud800"', "surrogate"),
        (b'{"a": ["x\\udc00"]}', "surrogate"),
        (b'"\\udc00\\ud800"', "surrogate"),
        (b'"\xff"', "UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "UTF-8"),
        (b"\xef\xbb\xbf{}", "Expecting value"),
        (b'{"a": 1}'.decode().encode("utf-16"), "UTF-8"),
        (b"[" * 65 + b"]" * 65, "deeper than 64"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "deeper than 64"),
        (b"[" * 100_000, "deeper than 64"),
        (b"[" * 100_000 + b"]" * 100_000, "deeper than 64"),
    ],
)
def test_refused_with_a_reason(data, reason):
    with pytest.raises(InvalidInput, match=reason) as refusal:
        loads(data)
    assert refusal.value.code is ErrorCode.REQUEST_MALFORMED_JSON


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"null", None),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b'"\\ud83d\\ude00"', "\N{GRINNING FACE}"),
        ('"\N{GRINNING FACE}"'.encode(), "\N{GRINNING FACE}"),
        (b'"\\\\u0000"', "\\u0000"),
        (b"[1.5, 1e3, -0.0]", [1.5, 1000.0, -0.0]),
        (b'{"a": {"a": 1}}', {"a": {"a": 1}}),
        (b" {} ", {}),
    ],
)
def test_accepted(data, value):
    assert loads(data) == value


def test_sixty_four_levels_are_fine():
    value = loads(b"[" * 64 + b"]" * 64)
    for _ in range(63):
        value = value[0]
    assert value == []


def test_wide_is_not_deep():
    assert len(loads(b"[" + b"[]," * 10_000 + b"[]]")) == 10_001


def test_brackets_inside_strings_are_not_depth():
    text = '[[[{"' * 100
    assert loads(json.dumps([text, {text: '\\"]]]'}]).encode()) == [text, {text: '\\"]]]'}]


def test_depth_is_found_behind_strings_with_brackets_and_quotes():
    data = b'["]]]]\\"[", ' + b"[" * 64 + b"]" * 64 + b"]"
    with pytest.raises(InvalidInput, match="deeper than 64"):
        loads(data)


@pytest.mark.parametrize(
    "data", [b"[" * 2_000_000, b'"' + b"\\" * 2_000_000, b'["' * 1_000_000, b'{"a":[' * 300_000]
)
def test_two_megabytes_of_malice_are_refused_quickly(data):
    started = time.monotonic()
    with pytest.raises(InvalidInput):
        loads(data)
    assert time.monotonic() - started < 5


def test_a_long_key_is_not_quoted_in_full():
    with pytest.raises(InvalidInput) as refusal:
        loads(b'{"%s": 1, "%s": 2}' % (b"k" * 10_000, b"k" * 10_000))
    assert len(str(refusal.value)) < 200


STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | STORABLE,
    lambda inner: st.lists(inner) | st.dictionaries(STORABLE, inner),
    max_leaves=30,
)


@given(VALUES, st.booleans())
def test_every_storable_value_is_read_back(value, escaped):
    assert loads(json.dumps(value, ensure_ascii=escaped).encode()) == value


@given(st.binary())
def test_any_bytes_are_json_or_refused(data):
    try:
        value = loads(data)
    except InvalidInput:
        return
    assert json.loads(data) == value


@given(st.text())
def test_text_is_kept_or_refused_but_never_changed(text):
    try:
        value = loads(json.dumps(text).encode())
    except InvalidInput:
        assert "\0" in text or any(0xD800 <= ord(char) < 0xE000 for char in text)
    else:
        assert value == text
        value.encode("utf-8")
        assert "\0" not in value
