"""The state diagrams in the pages are those of mitosis_protocol.transitions.

Fails when somebody changed a table without redrawing, or a diagram by hand.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from mitosis_protocol.enums import CodedEnum
from mitosis_protocol.transitions import MANAGER, SUITE, TASK
from tests.architecture.state_diagrams import DIAGRAMS, PAGES, block, fill, marked_blocks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.parametrize("name", DIAGRAMS)
def test_the_page_shows_the_diagram_of_the_table(name: str, page: Path) -> None:
    shown = marked_blocks(page.read_text(), name)
    assert shown == [block(name)], "run python -m tests.architecture.state_diagrams"


def test_redrawing_replaces_what_was_changed_by_hand() -> None:
    good = PAGES[0].read_text()
    assert fill(good.replace("    Open --> Closed\n", "")) == good


@pytest.mark.parametrize("table", [SUITE, MANAGER, TASK], ids=["suite", "manager", "task"])
def test_a_table_has_a_row_for_each_state(
    table: Mapping[CodedEnum, frozenset[CodedEnum]],
) -> None:
    assert set(table) == set(type(next(iter(table))))
