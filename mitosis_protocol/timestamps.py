"""Points in time as text: the form of the existing API, and RFC 3339 for everything new.

Existing workers read only the first (`2025-11-11 03:07:09.123456 +00:00:00`) and refuse the
second. Both are always written in UTC.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from mitosis_protocol.errors import InvalidValue

_LEGACY: Final = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2}) (?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"\.(?P<fraction>[0-9]{1,9}) (?P<sign>[+-])"
    r"(?P<hours>[0-9]{2})(?::(?P<minutes>[0-9]{2})(?::(?P<seconds>[0-9]{2}))?)?"
)
_RFC3339: Final = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt](?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:\.(?P<fraction>[0-9]{1,9}))?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<hours>[0-9]{2}):(?P<minutes>[0-9]{2}))"
)
_ARRAY_LENGTH: Final = 9


def format_legacy(moment: datetime) -> str:
    """As the existing server writes it: as many fraction digits as needed, at least one."""
    utc = _utc(moment)
    fraction = f"{utc.microsecond:06d}".rstrip("0") or "0"
    # isoformat pads years below 1000 to the four digits the reader wants; strftime does not.
    return f"{utc.replace(tzinfo=None).isoformat(' ', 'seconds')}.{fraction} +00:00:00"


def format_rfc3339(moment: datetime) -> str:
    """With `Z` and microseconds, so that texts of equal precision sort by time."""
    return _utc(moment).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_legacy(value: object) -> datetime:
    """The text form, or the nine integers the existing worker takes as well."""
    if isinstance(value, list | tuple):
        return _from_array(value)
    if not isinstance(value, str):
        raise InvalidValue(f"a timestamp must be text, not {type(value).__name__}")
    match = _LEGACY.fullmatch(value)
    if match is None:
        raise InvalidValue(f"{value[:64]!r} is not like 2025-11-11 03:07:09.0 +00:00:00")
    return _from_match(match, seconds=match["seconds"])


def parse_rfc3339(text: str) -> datetime:
    """RFC 3339 with an offset; a time without one is refused, not guessed."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise InvalidValue(f"{text[:64]!r} is not like 2025-11-11T03:07:09Z")
    return _from_match(match, seconds=None)


def parse_timestamp(text: str) -> datetime:
    """Either form, for input where both kinds of client arrive."""
    return parse_rfc3339(text) if "T" in text or "t" in text else parse_legacy(text)


def _from_match(match: re.Match[str], *, seconds: str | None) -> datetime:
    # Digits beyond microseconds are cut: neither PostgreSQL nor Python holds them.
    microsecond = (match["fraction"] or "0").ljust(6, "0")[:6]
    offset = timedelta(
        hours=int(match["hours"] or "0"),
        minutes=int(match["minutes"] or "0"),
        seconds=int(seconds or "0"),
    )
    if match["sign"] == "-":
        offset = -offset
    try:
        local = datetime.fromisoformat(f"{match['date']}T{match['time']}.{microsecond}")
        return local.replace(tzinfo=timezone(offset)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidValue(f"there is no such moment as {match[0]!r}") from error


def _from_array(items: list[object] | tuple[object, ...]) -> datetime:
    numbers = [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
    if len(numbers) != _ARRAY_LENGTH or len(items) != _ARRAY_LENGTH:
        raise InvalidValue("a timestamp array must hold nine integers")
    year, day, hour, minute, second, nanosecond, *offset = numbers
    try:
        start = datetime(year, 1, 1, hour, minute, second, nanosecond // 1000, UTC)
        local = start + timedelta(days=day - 1)
        if day < 1 or local.year != year:
            raise InvalidValue(f"the year {year} has no day {day}")
        return local - timedelta(hours=offset[0], minutes=offset[1], seconds=offset[2])
    except (ValueError, OverflowError) as error:
        raise InvalidValue(f"there is no such moment as {numbers}") from error


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise InvalidValue("a timestamp without a time zone is not a point in time")
    return moment.astimezone(UTC)
