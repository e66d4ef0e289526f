"""Every command block is executed, tested elsewhere, or says why it cannot be."""

from pathlib import Path

import pytest

from tests.docs.command_blocks import COMMAND, ROOT, Block, Fate, blocks, fences, pages

PAGES = pages()
ALL = [block for page in PAGES for block in blocks(page)]
MIN_REASON_WORDS = 3


def test_there_are_blocks_of_every_fate() -> None:
    assert {block.fate for block in ALL} == set(Fate)


@pytest.mark.parametrize(
    "block", [one for one in ALL if one.fate is Fate.NOT_RUN], ids=lambda block: block.name
)
def test_what_is_not_run_says_why(block: Block) -> None:
    assert len(block.reason.split()) >= MIN_REASON_WORDS


@pytest.mark.parametrize(
    "block", [one for one in ALL if one.fate is Fate.TESTED], ids=lambda block: block.name
)
def test_what_another_test_runs_is_run_by_one_that_exists(block: Block) -> None:
    file, _, test = block.reason.partition("::")
    path = ROOT / file
    assert path.is_file(), block.reason
    assert f"def {test}(" in path.read_text() or not test, block.reason


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_hides_in_a_fence_without_a_language(page: Path) -> None:
    hidden = [
        match["body"].splitlines()[0]
        for match in fences(page)
        if match["language"] in ("", "text") and COMMAND.search(match["body"])
    ]
    assert not hidden


def test_a_marker_counts_only_right_above_its_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: needs a fleet -->\n\nWords.\n\n```sh\nmake a\n```\n\n"
        "<!-- not run: needs a fleet -->\n```sh\nmake b\n```\n"
    )
    assert [block.fate for block in blocks(page)] == [Fate.EXECUTED, Fate.NOT_RUN]
