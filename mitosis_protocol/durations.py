"""Durations as text, the way the existing server reads and writes them ("1h 30m").

Used by HTTP bodies, WebSocket messages and the command line. Input is a run of number-unit pairs
with optional blanks; units are case-sensitive (`M` is a month, `m` a minute).
"""

import re
from typing import Final

from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_DURATION_S

NS_PER_S: Final = 1_000_000_000
MONTH_S: Final = 2_630_016  # 30.44 days
YEAR_S: Final = 31_557_600  # 365.25 days

_MICRO: Final = "\N{MICRO SIGN}"

_NS_PER_UNIT: Final[dict[str, int]] = {
    **dict.fromkeys(("ns", "nsec", "nanos"), 1),
    **dict.fromkeys(("us", "usec", f"{_MICRO}s"), 1_000),
    **dict.fromkeys(("ms", "msec", "millis"), 1_000_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), NS_PER_S),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60 * NS_PER_S),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600 * NS_PER_S),
    **dict.fromkeys(("d", "day", "days"), 86_400 * NS_PER_S),
    **dict.fromkeys(("w", "wk", "wks", "week", "weeks"), 604_800 * NS_PER_S),
    **dict.fromkeys(("M", "month", "months"), MONTH_S * NS_PER_S),
    **dict.fromkeys(("y", "yr", "yrs", "year", "years"), YEAR_S * NS_PER_S),
}

# 30 digits are more than any duration needs and keep the arithmetic of a hostile text small.
_PAIR: Final = re.compile(rf"\s*([0-9]{{1,30}})(?:\.([0-9]{{1,30}}))?\s*([A-Za-z{_MICRO}]+)\s*")
_MAX_TEXT: Final = 256

# Largest first. Years, months and days are words with a plural; the rest are letters.
_OUTPUT: Final[tuple[tuple[int, str, str], ...]] = (
    (YEAR_S * NS_PER_S, "year", "years"),
    (MONTH_S * NS_PER_S, "month", "months"),
    (86_400 * NS_PER_S, "day", "days"),
    (3600 * NS_PER_S, "h", "h"),
    (60 * NS_PER_S, "m", "m"),
    (NS_PER_S, "s", "s"),
    (1_000_000, "ms", "ms"),
    (1_000, "us", "us"),
    (1, "ns", "ns"),
)


def parse_duration(text: str) -> int:
    """Whole seconds, as they are stored: fractions are cut, but nothing positive becomes zero.

    A task with a timeout of 500ms must not get a timeout of zero. Raises InvalidValue.
    """
    nanoseconds = parse_nanoseconds(text)
    seconds = nanoseconds // NS_PER_S
    return seconds if seconds or not nanoseconds else 1


def parse_nanoseconds(text: str) -> int:
    """The exact value; raises InvalidValue for anything the existing server refuses."""
    if len(text) > _MAX_TEXT:
        raise InvalidValue("a duration must not be longer than 256 characters")
    if text == "0":
        return 0
    total, position = 0, 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            raise InvalidValue(_complaint(text))
        total += _pair_ns(pair, text)
        position = pair.end()
    if position == 0:
        raise InvalidValue("a duration must not be empty; write for example 90s or 1h 30m")
    if total > MAX_DURATION_S * NS_PER_S:
        raise InvalidValue(f"the duration {text!r} is longer than 68 years")
    return total


def format_duration(seconds: int) -> str:
    """`5400` as `1h 30m`, `86400` as `1day`, `0` as `0s`."""
    return format_nanoseconds(seconds * NS_PER_S)


def format_nanoseconds(nanoseconds: int) -> str:
    """As `format_duration`, with fractions of a second as ms, us and ns."""
    if nanoseconds < 0:
        raise InvalidValue("a duration must not be negative")
    parts: list[str] = []
    rest = nanoseconds
    for size, one, many in _OUTPUT:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{one if count == 1 else many}")
    return " ".join(parts) or "0s"


def _pair_ns(pair: re.Match[str], text: str) -> int:
    whole, fraction, unit = pair[1], pair[2] or "", pair[3]
    size = _NS_PER_UNIT.get(unit)
    if size is None:
        raise InvalidValue(f"unknown unit {unit!r} in the duration {text!r}")
    # Integers throughout: 0.1 has no exact binary form, and 0.1s is 100ms to the nanosecond.
    scale: int = 10 ** len(fraction)
    return int(whole) * size + int(fraction or "0") * size // scale


def _complaint(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith("-"):
        return f"the duration {text!r} is negative"
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", stripped):
        return f"the duration {text!r} has no unit; write for example {stripped}s"
    return f"{text!r} is not a duration; write for example 90s or 1h 30m"
