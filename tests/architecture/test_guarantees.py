"""Every promise of docs/guarantees.md and every defence of SECURITY.md names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


@pytest.mark.parametrize(("page", "least"), [("docs/guarantees.md", 20), ("SECURITY.md", 12)])
def test_the_tests_that_a_page_names_exist(page: str, least: int) -> None:
    named = NAMED.findall((ROOT / page).read_text())
    assert len(named) >= least
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).is_file() or f"def {test or 'test_'}" not in (ROOT / path).read_text()
    ]
    assert missing == []


def test_every_row_of_the_guarantees_names_a_test() -> None:
    lines = (ROOT / "docs/guarantees.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| promise")]
    bare = [line[:80] for line in rows if "shown by" not in line and not NAMED.search(line)]
    assert bare == []


GOAL_ROW = re.compile(r"^\| (?P<goal>[^|]+?) \| [^|]+ \| `(?P<path>tests/[\w/]+\.py)::\w+` \|$")
NOTED = re.compile(r'\bfigure\(\s*"([^"]+)"')


def test_every_goal_is_noted_by_the_test_it_names_and_every_figure_is_a_goal() -> None:
    page = (ROOT / "docs/guarantees.md").read_text()
    section = page.partition("## Numbers that are held")[2].partition("\n## ")[0]
    rows = [found for line in section.splitlines() if (found := GOAL_ROW.match(line))]
    assert len(rows) >= 25
    claimed = {(row["goal"], row["path"]) for row in rows}
    noted = {
        (goal, str(path.relative_to(ROOT)))
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.parent.name != "architecture"
        for goal in NOTED.findall(path.read_text())
    }
    assert noted == claimed
