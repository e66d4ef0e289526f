"""`--watch`: the same look every second; full screen on a terminal, value after value in a pipe."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mitosis_client.cli.output import Printer

if TYPE_CHECKING:
    from rich.console import RenderableType

INTERVAL_S: Final = 1.0


def present(printer: Printer, look: Callable[[], None], *, watch: bool) -> None:
    """Look once, or until Ctrl-C. JSON comes as one line a look, for `while read`."""
    if not watch:
        look()
        return
    if printer.is_table and printer.console.is_terminal:
        from mitosis_client.cli.screen import repeat  # noqa: PLC0415 - rich, for terminals only

        repeat(printer.console, lambda: _frame(printer, look), interval_s=INTERVAL_S)
        return
    printer.is_one_line = True
    while True:
        look()
        time.sleep(INTERVAL_S)


def _frame(printer: Printer, look: Callable[[], None]) -> "list[RenderableType]":
    with printer.collecting() as found:
        look()
    return found
