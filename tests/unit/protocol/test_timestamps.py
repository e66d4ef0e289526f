"""The two spellings of a moment."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.timestamps import (
    format_legacy,
    format_rfc3339,
    parse_legacy,
    parse_rfc3339,
    parse_timestamp,
)

MOMENT = datetime(2025, 11, 11, 3, 7, 9, 123456, UTC)


@pytest.mark.parametrize(
    ("microsecond", "fraction"),
    [(0, "0"), (500_000, "5"), (123_456, "123456"), (120_000, "12"), (1, "000001")],
)
def test_legacy_has_as_many_fraction_digits_as_needed_and_at_least_one(microsecond, fraction):
    moment = MOMENT.replace(microsecond=microsecond)
    assert format_legacy(moment) == f"2025-11-11 03:07:09.{fraction} +00:00:00"


def test_legacy_pads_small_years():
    assert format_legacy(datetime(7, 1, 2, tzinfo=UTC)) == "0007-01-02 00:00:00.0 +00:00:00"


def test_other_zones_are_written_in_utc():
    moment = datetime(2025, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    assert format_legacy(moment) == "2024-12-31 23:00:00.0 +00:00:00"
    assert format_rfc3339(moment) == "2024-12-31T23:00:00.000000Z"


def test_a_moment_without_a_zone_is_refused():
    with pytest.raises(InvalidValue):
        format_legacy(datetime(2025, 1, 1))  # noqa: DTZ001 - the point of the test
    with pytest.raises(InvalidValue):
        format_rfc3339(datetime(2025, 1, 1))  # noqa: DTZ001 - the point of the test


@pytest.mark.parametrize(
    "text",
    [
        "2025-11-11 03:07:09.123456 +00:00:00",
        "2025-11-11 03:07:09.123456789 +00:00",
        "2025-11-11 03:07:09.123456 +00",
        "2025-11-11 05:07:09.123456 +02:00:00",
        "2025-11-10 21:37:09.123456 -05:30",
    ],
)
def test_legacy_forms_that_are_read(text):
    assert parse_legacy(text) == MOMENT


def test_legacy_as_nine_integers_is_read():
    assert parse_legacy([2025, 315, 3, 7, 9, 123_456_000, 0, 0, 0]) == MOMENT
    assert parse_legacy((2025, 315, 5, 7, 9, 123_456_000, 2, 0, 0)) == MOMENT


@pytest.mark.parametrize(
    "value",
    [
        "2025-11-11T03:07:09.123456Z",
        "2025-11-11 03:07:09 +00:00:00",
        "2025-11-11 03:07:09.1",
        "2025-11-11 03:07:09.1 00:00:00",
        "2025-13-11 03:07:09.1 +00:00:00",
        "2025-11-11 24:07:09.1 +00:00:00",
        "2025-11-11 03:07:09.1 +99:00:00",
        "0001-01-01 00:00:00.0 +10:00:00",
        "2025-11-11 03:07:09.1 +00:00:00\n",
        "",
        5,
        None,
        [2025, 315, 3, 7, 9, 0, 0, 0],
        [2025, 366, 3, 7, 9, 0, 0, 0, 0],
        [2025, 0, 3, 7, 9, 0, 0, 0, 0],
        [2025, 315, 3, 7, 9, "0", 0, 0, 0],
        [2025, 315, 3, 7, 9, True, 0, 0, 0],
        [2025, 315, 25, 7, 9, 0, 0, 0, 0],
        [99999, 1, 0, 0, 0, 0, 0, 0, 0],
        [2025, 1, 0, 0, 0, 0, 10**12, 0, 0],
    ],
)
def test_legacy_forms_that_are_refused(value):
    with pytest.raises(InvalidValue):
        parse_legacy(value)


@pytest.mark.parametrize(
    "text",
    [
        "2025-11-11T03:07:09.123456Z",
        "2025-11-11t03:07:09.123456z",
        "2025-11-11T05:07:09.123456+02:00",
        "2025-11-11T03:07:09.1234569Z",
    ],
)
def test_rfc3339_forms_that_are_read(text):
    assert parse_rfc3339(text) == MOMENT


@pytest.mark.parametrize(
    "text", ["2025-11-11T03:07:09", "2025-11-11 03:07:09Z", "2025-02-30T00:00:00Z", "now", ""]
)
def test_rfc3339_forms_that_are_refused(text):
    with pytest.raises(InvalidValue):
        parse_rfc3339(text)


def test_either_form_is_read_where_both_kinds_of_client_arrive():
    assert parse_timestamp(format_legacy(MOMENT)) == MOMENT
    assert parse_timestamp(format_rfc3339(MOMENT)) == MOMENT


@given(st.datetimes(timezones=st.just(UTC)))
def test_both_forms_survive_the_round_trip(moment):
    assert parse_legacy(format_legacy(moment)) == moment
    assert parse_rfc3339(format_rfc3339(moment)) == moment


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_rfc3339_texts_sort_by_time(first, second):
    assert (format_rfc3339(first) < format_rfc3339(second)) == (first < second)


@given(st.text(max_size=40))
def test_any_text_is_a_moment_or_refused(text):
    with contextlib.suppress(InvalidValue):
        assert parse_timestamp(text).tzinfo is UTC
