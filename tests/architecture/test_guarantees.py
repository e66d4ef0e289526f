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
