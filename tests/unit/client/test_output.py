"""What reaches the terminal: nothing from outside may steer it; JSON stays one value."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis_client.cli.main import command_of, hoist
from mitosis_client.cli.output import Printer, clean, fail_in, json_text
from mitosis_client.cli.tables import members_of, table_of


def is_harmless(text: str) -> bool:
    return not any(
        ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2066\u200f\u2028" for c in text
    )


@given(st.text())
def test_a_cleaned_text_holds_nothing_a_terminal_obeys(text: str):
    assert is_harmless(clean(text))
    assert is_harmless(json_text(text))
    assert json.loads(json_text(text)) == text


def test_controls_are_shown_instead_of_dropped():
    assert clean("a\x1b[2Jb\u202e\x9b") == "a\\x1b[2Jb\\u202e\\x9b"
    assert clean("line\n\tnext\r", keep="\n\t") == "line\n\tnext\\x0d"
    assert clean("plain äöü 漢字") == "plain äöü 漢字"


def test_tables_take_markup_literally_and_escapes_visibly():
    def name(one: str) -> object:
        return one

    table = table_of(["[red]x[/red]\x1b"], [("name", name)])
    [cell] = list(table.columns[0].cells)
    assert str(cell) == "[red]x[/red]\\x1b"
    members = members_of({"k\x1b": ["v\x07"], "empty": None})
    assert [str(cell) for cell in members.columns[0].cells] == ["k\\x1b"]
    assert [str(cell) for cell in members.columns[1].cells] == ["v\\x07"]


def test_a_problem_is_one_line_in_either_form(capsys: pytest.CaptureFixture[str]):
    assert fail_in("table", "two\nlines\x1b", code=3) == 3
    assert capsys.readouterr().err == "mitosis: two lines\\x1b\n"
    fail_in("json", "two\nlines", code=3, kind="object.not_found")
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert json.loads(told)["error"]["code"] == "object.not_found"


def test_options_of_every_command_may_stand_anywhere_before_the_dashes():
    words = ["suites", "list", "-o", "json", "--group=g", "--", "-o", "kept"]
    assert hoist(words) == ["-o", "json", "--group=g", "suites", "list", "--", "-o", "kept"]
    assert hoist(["run", "-o"]) == ["run", "-o"]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["-o", "json", "--group=g", "suites", "list"], "suites"),
        (["run"], "run"),
        (["--help"], None),
        (["--help", "suites"], None),
        (["-o"], None),
        ([], None),
    ],
)
def test_the_command_is_known_before_its_module_is_imported(words: list[str], command: str | None):
    assert command_of(words) == command


def test_several_ids_are_a_line_each(capsys: pytest.CaptureFixture[str]):
    Printer("quiet").done("two", ids=["a", "b\n\x1b"])
    assert capsys.readouterr().out == "a\nb\\x0a\\x1b\n"
