"""JSON from strangers, refused when anything behind us could choke on it.

Every HTTP body passes here (core.drf). Refused: NaN and infinities, numbers that overflow, NUL
and lone surrogates in strings (jsonb rejects both), nesting beyond 64, repeated keys, integers
beyond 64 bits, bytes that are not UTF-8. Anything json.loads takes otherwise is taken.
"""

import json
import math
import re
from itertools import accumulate
from typing import Final, Never

from core.errors import InvalidInput
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.limits import MAX_JSON_DEPTH

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
# "-9223372036854775808" has 20 characters; longer texts need not be converted to be refused.
_INT64_MAX_CHARS: Final = 20
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_SUSPECT_ESCAPE: Final = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
# Possessive throughout: linear on hostile input, and 2.5 times faster than plain alternation.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# For bytes.translate: opening brackets become 1, closing ones 0, everything else goes.
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\x00\x00")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def loads(data: bytes) -> object:
    """The value in `data`; raises InvalidInput with a reason fit to show to the sender."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refusal(f"not UTF-8 at byte {error.start}") from error
    _check_depth(data)
    try:
        value: object = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise _refusal(f"{error.msg.removesuffix(' at')} at {place}") from error
    # Dangerous strings are always spelled as escapes, so ordinary bodies are not walked again.
    if _SUSPECT_ESCAPE.search(data) is not None:
        _check_texts(value)
    return value


def _check_depth(data: bytes) -> None:
    """Count brackets outside of strings, before the parser recurses into them.

    Exact up to the first syntax error, where the parser stops anyway.
    """
    if data.count(b"[") + data.count(b"{") <= MAX_JSON_DEPTH:
        return
    brackets = _STRING.sub(b"", data).translate(_STEPS, _NOT_BRACKETS)
    steps = (1 if step else -1 for step in brackets)
    if max(accumulate(steps), default=0) > MAX_JSON_DEPTH:
        raise _too_deep()


def _check_texts(root: object) -> None:
    """Look at every string and key, without recursion."""
    pending: list[object] = [root]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            _check_text(value)
        elif isinstance(value, dict):
            pending.extend(value)
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _check_text(text: str) -> None:
    if _UNSTORABLE.search(text) is not None:
        raise _refusal("a string holds a NUL or half of a surrogate pair")


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _refusal(f"the key {key[:64]!r} is given twice")
            seen.add(key)
    return found


def _bounded_int(text: str) -> int:
    if len(text) <= _INT64_MAX_CHARS:
        number = int(text)
        if _INT64_MIN <= number <= _INT64_MAX:
            return number
    raise _refusal("an integer does not fit 64 bits")


def _finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _refusal("a number is too large")
    return number


def _refuse_constant(name: str) -> Never:
    raise _refusal(f"{name} is not JSON")


def _too_deep() -> InvalidInput:
    return _refusal(f"nested deeper than {MAX_JSON_DEPTH} levels")


def _refusal(reason: str) -> InvalidInput:
    return InvalidInput(f"invalid JSON: {reason}", code=ErrorCode.REQUEST_MALFORMED_JSON)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_int=_bounded_int,
    parse_float=_finite_float,
    parse_constant=_refuse_constant,
)
