"""Sizes, quota changes, number filters and names: the small grammars of the API."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.names import check_name, is_valid_name
from mitosis_protocol.number_filter import parse_number_filter
from mitosis_protocol.sizes import (
    MAX_SIZE,
    QuotaChange,
    format_size,
    parse_count_change,
    parse_size,
    parse_size_change,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10GB", 10**10),
        ("1GiB", 2**30),
        ("1.5 MiB", 1_572_864),
        ("2048", 2048),
        ("2048b", 2048),
        ("1k", 1000),
        ("1K", 1000),
        ("1 Ki", 1024),
        ("1_000_000", 1_000_000),
        ("1e3", 1000),
        ("1.5e3 kB", 1_500_000),
        ("1E", 10**18),
        ("1EiB", 2**60),
        ("2e", 2 * 10**18),
        ("0.5", 1),
        ("1.4", 1),
        ("1.5", 2),
        ("0", 0),
        (" 3 t ", 3 * 10**12),
        ("2p", 2 * 10**15),
        (str(MAX_SIZE), MAX_SIZE),
    ],
)
def test_sizes_that_are_read(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", " ", "GB", "-1", "1.2.3", "1 gigabyte", "1BB", "1iB", "8EiB", "1e400", "9" * 65, "0x10"],
)
def test_sizes_that_are_refused(text):
    with pytest.raises(InvalidValue):
        parse_size(text)


@given(st.integers(0, MAX_SIZE))
def test_sizes_survive_the_round_trip(size):
    assert parse_size(format_size(size)) == size


@given(st.text(max_size=30))
def test_any_text_is_a_size_or_refused(text):
    with contextlib.suppress(InvalidValue):
        assert 0 <= parse_size(text) <= MAX_SIZE


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("+1GB", QuotaChange("+", 10**9)),
        ("-1 GiB", QuotaChange("-", 2**30)),
        ("=5", QuotaChange("=", 5)),
        ("5MB", QuotaChange("=", 5_000_000)),
        (" + 5", QuotaChange("+", 5)),
    ],
)
def test_storage_quotas_may_be_set_or_shifted(text, change):
    assert parse_size_change(text) == change


@pytest.mark.parametrize(
    ("text", "op", "amount"), [("8", "=", 8), ("+2", "+", 2), ("-1", "-", 1), ("=0", "=", 0)]
)
def test_group_quotas_may_be_set_or_shifted(text, op, amount):
    assert parse_count_change(text) == QuotaChange(op, amount)


@pytest.mark.parametrize("text", ["", "+", "1.5", "1k", "++1", "-+1", "9" * 19, "eight"])
def test_group_quotas_are_whole_numbers(text):
    with pytest.raises(InvalidValue):
        parse_count_change(text)


def test_a_change_stops_at_its_floor_and_only_there():
    assert QuotaChange("-", 10).apply(4, floor=0) == 0
    assert QuotaChange("-", 10).apply(4) == -6
    assert QuotaChange("+", 10).apply(4) == 14
    assert QuotaChange("=", 10).apply(4) == 10


def test_a_change_beyond_64_bits_is_refused():
    with pytest.raises(InvalidValue):
        QuotaChange("+", 1).apply(MAX_SIZE)


@pytest.mark.parametrize(
    ("text", "passing", "failing"),
    [
        ("5", [5], [4, 6]),
        ("=5", [5], [4, 6]),
        ("!=5", [4, 6], [5]),
        (">5", [6], [5, 4]),
        (">=5", [5, 6], [4]),
        ("<5", [4], [5, 6]),
        ("<=5", [5, 4], [6]),
        ("-1", [-1], [1]),
        (">-2", [-1, 0], [-2]),
        ("9", [9], [10]),
    ],
)
def test_number_filters_compare_as_numbers(text, passing, failing):
    wanted = parse_number_filter(text)
    assert all(wanted.matches(number) for number in passing)
    assert not any(wanted.matches(number) for number in failing)


@pytest.mark.parametrize(
    ("text", "lookup", "negated", "operator"),
    [("!=1", "exact", True, "<>"), (">=1", "gte", False, ">="), ("1", "exact", False, "=")],
)
def test_number_filters_know_their_query(text, lookup, negated, operator):
    wanted = parse_number_filter(text)
    assert (wanted.lookup, wanted.is_negated, wanted.sql_operator) == (lookup, negated, operator)


@pytest.mark.parametrize(
    "text", ["", ">", "=>5", "> 5", "5;", "==5", "<>5", "2147483648", "1.0", "five", "5\n"]
)
def test_number_filters_refuse_everything_else(text):
    with pytest.raises(InvalidValue):
        parse_number_filter(text)


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 255, "-", "_"])
def test_valid_names(name):
    assert is_valid_name(name)
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "x" * 256, "a b", "a\n", "\N{LATIN SMALL LETTER E WITH ACUTE}", "a/b", "a:b", "a.b"],
)
def test_invalid_names(name):
    assert not is_valid_name(name)
    with pytest.raises(InvalidValue, match="not a valid user name"):
        check_name(name, what="user name")
