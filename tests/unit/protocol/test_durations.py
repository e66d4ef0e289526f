"""Durations read and written as the existing server does."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis_protocol.durations import (
    format_duration,
    format_nanoseconds,
    parse_duration,
    parse_nanoseconds,
)
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_DURATION_S

UNITS = {
    1: ("ns", "nsec", "nanos"),
    1_000: ("us", "usec", "\N{MICRO SIGN}s"),
    1_000_000: ("ms", "msec", "millis"),
    1_000_000_000: ("s", "sec", "secs", "second", "seconds"),
    60 * 10**9: ("m", "min", "mins", "minute", "minutes"),
    3600 * 10**9: ("h", "hr", "hrs", "hour", "hours"),
    86_400 * 10**9: ("d", "day", "days"),
    604_800 * 10**9: ("w", "wk", "wks", "week", "weeks"),
    2_630_016 * 10**9: ("M", "month", "months"),
    31_557_600 * 10**9: ("y", "yr", "yrs", "year", "years"),
}


@pytest.mark.parametrize(
    ("unit", "size"), [(unit, size) for size, units in UNITS.items() for unit in units]
)
def test_every_unit_has_its_size(unit, size):
    assert parse_nanoseconds(f"3{unit}") == 3 * size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h 30m", 5400),
        ("1h30m", 5400),
        ("1 h 30 m", 5400),
        (" 90s ", 90),
        ("1.5h", 5400),
        ("0", 0),
        ("0s", 0),
        ("1d2h3m4s", 93_784),
        ("1m30s", 90),
        ("5400s", 5400),
        ("2s 900ms", 2),
    ],
)
def test_accepted_texts(text, seconds):
    assert parse_duration(text) == seconds


def test_a_month_is_not_a_minute():
    assert parse_duration("1M") == 2_630_016
    assert parse_duration("1m") == 60


@pytest.mark.parametrize("text", ["1ns", "500ms", "0.2s"])
def test_a_positive_duration_never_becomes_zero_seconds(text):
    assert parse_duration(text) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "5",
        "00",
        "1.5",
        "-5s",
        "+5s",
        "s",
        "5S",
        "5 Hours",
        "1.s",
        ".5s",
        "1.5.2s",
        "5s,",
        "5s3",
        "5\N{GREEK SMALL LETTER MU}s",
        "\N{ARABIC-INDIC DIGIT FIVE}s",
        "1e3s",
        "inf",
        "100y",
        "9" * 40 + "s",
        "1s" * 1000,
    ],
)
def test_refused_texts(text):
    with pytest.raises(InvalidValue):
        parse_duration(text)


def test_a_bare_number_is_told_what_is_missing():
    with pytest.raises(InvalidValue, match="has no unit; write for example 5s"):
        parse_duration("5")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (5400, "1h 30m"),
        (86_400, "1day"),
        (2 * 86_400 + 1, "2days 1s"),
        (2_630_016, "1month"),
        (31_557_600, "1year"),
        (2 * 31_557_600 + 2 * 2_630_016, "2years 2months"),
        (604_800, "7days"),
    ],
)
def test_written_largest_first(seconds, text):
    assert format_duration(seconds) == text


def test_fractions_of_a_second_are_written_exactly():
    assert format_nanoseconds(1_002_003_004) == "1s 2ms 3us 4ns"


def test_a_negative_duration_is_not_written():
    with pytest.raises(InvalidValue):
        format_duration(-1)


@given(st.integers(0, MAX_DURATION_S))
def test_seconds_survive_the_round_trip(seconds):
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(0, MAX_DURATION_S * 10**9))
def test_nanoseconds_survive_the_round_trip(nanoseconds):
    assert parse_nanoseconds(format_nanoseconds(nanoseconds)) == nanoseconds


@given(st.text(max_size=40))
def test_any_text_is_a_duration_or_refused(text):
    with contextlib.suppress(InvalidValue):
        assert 0 <= parse_duration(text) <= MAX_DURATION_S
