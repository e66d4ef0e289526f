"""A progress bar wherever a program runs: in a notebook, on a terminal, or nowhere.

In a notebook it is plain HTML through IPython's own display, which is always there; rich would
need the package ipywidgets for that.
"""

import html
import sys
from importlib import import_module
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Bar(Protocol):
    """How far something is."""

    def update(self, *, done: int, total: int, failed: int = 0) -> None: ...

    def close(self) -> None: ...


def new_bar(title: str) -> Bar:
    return NotebookBar(title) if is_notebook() else TerminalBar(title)


def is_notebook() -> bool:
    """Whether this is a kernel with a page that shows what it displays."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class TerminalBar:
    """Draws on stderr, and nothing if that is no terminal."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        console = console or Console(stderr=True, markup=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._title = title
        self._task = self._bar.add_task(title, total=None)
        self._bar.start()

    def update(self, *, done: int, total: int, failed: int = 0) -> None:
        title = f"{self._title}, {failed} failed" if failed else self._title
        self._bar.update(self._task, completed=done, total=total, description=title)

    def close(self) -> None:
        self._bar.stop()


class NotebookBar:
    """One line of HTML below the cell, changed in place."""

    def __init__(self, title: str) -> None:
        self._display: Any = import_module("IPython.display")
        self._title = html.escape(title)
        self._shown: tuple[int, int, int] | None = None
        self._handle = self._display.display(self._html("…"), display_id=True)

    def update(self, *, done: int, total: int, failed: int = 0) -> None:
        if (done, total, failed) == self._shown:
            return  # every change is a message to the browser
        self._shown = (done, total, failed)
        tail = f", {failed} failed" if failed else ""
        bar = f'<progress value="{done}" max="{max(total, 1)}"></progress> {done}/{total}{tail}'
        self._handle.update(self._html(bar))

    def close(self) -> None:
        """It stays where it is."""

    def _html(self, rest: str) -> Any:
        return self._display.HTML(f"<code>{self._title}</code> {rest}")
