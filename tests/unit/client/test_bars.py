"""Progress in a notebook goes through the page's own display; on a terminal it is drawn."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from mitosis_client.bars import NotebookBar, TerminalBar, new_bar


class Page:
    """What a kernel offers to show things: `display` with a handle that changes them in place."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def HTML(self, text: str) -> str:  # noqa: N802 - IPython's name
        return text

    def display(self, text: str, *, display_id: bool) -> "Page":
        assert display_id
        self.shown.append(text)
        return self

    def update(self, text: str) -> None:
        self.shown[-1] = text


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    found = Page()
    shell: Any = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", found)
    return found


def test_in_a_notebook_one_line_changes_in_place(page: Page):
    bar = new_bar("<b>mine")
    assert isinstance(bar, NotebookBar)
    bar.update(done=1, total=4)
    bar.update(done=4, total=4, failed=2)
    bar.close()
    [line] = page.shown
    assert 'value="4" max="4"' in line
    assert "4/4, 2 failed" in line
    assert "<b>" not in line


def test_elsewhere_it_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert isinstance(new_bar("x"), TerminalBar)
    for is_terminal in (True, False):
        drawn = io.StringIO()
        bar = TerminalBar("sweep", Console(file=drawn, force_terminal=is_terminal, width=100))
        bar.update(done=2, total=3, failed=1)
        bar.close()
        assert ("2/3" in drawn.getvalue()) is is_terminal
        assert ("sweep, 1 failed" in drawn.getvalue()) is is_terminal
