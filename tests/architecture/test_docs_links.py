"""Links between our own pages resolve: the file is there, and so is the heading.

Covers every Markdown page at the root and under docs/. Outside addresses are not
followed: tests need no network.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
ADRS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
OUTSIDE = re.compile(r"[a-z]+:")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.MULTILINE)
MAX_ADR_WORDS = 650  # about one printed page


def _prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def _anchors(page: Path) -> set[str]:
    """Heading anchors by the rule of the forges: lower case, no punctuation, spaces to hyphens."""
    titles = HEADING.findall(_prose(page))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _resolves(page: Path, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = (page.parent / file).resolve() if file else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or anchor in _anchors(target)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    inside = [link for link in LINK.findall(_prose(page)) if not OUTSIDE.match(link)]
    assert not [link for link in inside if not _resolves(page, link)]


def test_decision_records_are_numbered_without_gaps() -> None:
    assert [int(path.name[:4]) for path in ADRS] == list(range(1, len(ADRS) + 1))


@pytest.mark.parametrize("record", ADRS, ids=lambda path: path.stem)
def test_a_decision_record_is_one_page_and_listed_in_the_index(record: Path) -> None:
    text = record.read_text()
    assert len(text.split()) <= MAX_ADR_WORDS
    for part in ("Context", "Decision", "Consequences", "Measured", "Refused"):
        assert f"\n## {part}\n" in text
    assert f"({record.name})" in (record.parent / "README.md").read_text()
