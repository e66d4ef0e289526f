"""Sweeps: ranges, lists, files, rows, and which flags belong to the command."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis_client.errors import ConfigError
from mitosis_client.params import checked_rows, rows_of, slices, split_command, values_of


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1..4", ["1", "2", "3", "4"]),
        ("3..1", ["3", "2", "1"]),
        ("0..1:0.25", ["0.00", "0.25", "0.50", "0.75", "1.00"]),
        ("-1..1", ["-1", "0", "1"]),
        ("a,b", ["a", "b"]),
        ("1..2,9,x", ["1", "2", "9", "x"]),
        ("v1.2..beta", ["v1.2..beta"]),
        ("7", ["7"]),
    ],
)
def test_values_are_ranges_and_lists(text: str, values: list[str]):
    assert values_of(text) == values


@pytest.mark.parametrize("text", ["", "5..1:1", "1..5:0", "0..99999999"])
def test_values_that_make_no_sense_are_refused(text: str):
    with pytest.raises(ConfigError):
        values_of(text)


def test_values_are_the_lines_of_a_file(tmp_path: Path):
    (tmp_path / "v").write_text("one\n\ntwo, three\n")
    assert values_of(f"@{tmp_path / 'v'}") == ["one", "two, three"]
    with pytest.raises(ConfigError):
        values_of(f"@{tmp_path / 'missing'}")


def test_only_pairs_whose_name_stands_in_the_command_belong_to_the_sweep():
    words = ["train", "--lr", "{lr}", "--out", "{x}.txt", "--lr", "0.1,0.2", "--x", "1..2"]
    command, found = split_command(words)
    assert command == ["train", "--lr", "{lr}", "--out", "{x}.txt"]
    assert found == {"lr": "0.1,0.2", "x": "1..2"}
    assert split_command(["ls", "--color", "auto"]) == (["ls", "--color", "auto"], {})
    assert split_command(["awk", "{print}", "--print", "x"])[1] == {"print": "x"}


def test_a_parameter_given_twice_or_never_used_is_refused():
    with pytest.raises(ConfigError, match="twice"):
        split_command(["echo", "{x}", "--x", "1", "--x", "2"])
    with pytest.raises(ConfigError, match="does not use"):
        checked_rows(["echo"], {"x": ["1"]})


def test_rows_and_values_are_combined(tmp_path: Path):
    (tmp_path / "r.csv").write_text('n,word\n1,"a,b"\n2,c\n')
    rows = rows_of(tmp_path / "r.csv")
    assert rows == [{"n": "1", "word": "a,b"}, {"n": "2", "word": "c"}]
    found = checked_rows(["echo", "{n}", "{x}"], {"x": ["p", "q"]}, rows)
    assert [(row["n"], row["x"]) for row in found] == [
        ("1", "p"), ("1", "q"), ("2", "p"), ("2", "q"),
    ]  # fmt: skip


def test_rows_come_from_json_and_json_lines(tmp_path: Path):
    (tmp_path / "r.json").write_text('[{"n": 1}, {"n": true}]')
    (tmp_path / "r.jsonl").write_text('{"n": 1}\n{"n": true}\n')
    assert rows_of(tmp_path / "r.json") == rows_of(tmp_path / "r.jsonl") == [{"n": 1}, {"n": True}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("short.csv", "a,b\n1\n"),
        ("long.csv", "a\n1,2\n"),
        ("name.csv", "a b\n1\n"),
        ("empty.csv", "a\n"),
        ("nested.json", '[{"a": [1]}]'),
        ("scalar.json", "[1]"),
        ("broken.json", "[{"),
        ("table.json", '"text"'),
    ],
)
def test_rows_that_cannot_be_parameters_are_refused(tmp_path: Path, name: str, text: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=name):
        rows_of(tmp_path / name)


def test_too_many_combinations_are_refused_before_they_are_made():
    values = [str(n) for n in range(2000)]
    with pytest.raises(ConfigError, match="4000000"):
        checked_rows(["{a}", "{b}"], {"a": values, "b": values})


@given(st.lists(st.text(max_size=40), min_size=1, max_size=50), st.integers(100, 2000))
def test_slices_lose_and_repeat_nothing(texts: list[str], max_bytes: int):
    rows = [{"x": text} for text in texts]
    parts = list(slices(rows, max_bytes=max_bytes))
    assert [row for part in parts for row in part] == rows
    assert all(parts)
