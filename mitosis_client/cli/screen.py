"""A full screen that is drawn again and again, and given back at the end. For `top`, `--watch`."""

import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from mitosis_client.cli.output import clean
from mitosis_client.errors import CoordinatorUnreachable

Draw = Callable[[], Sequence[RenderableType]]


def repeat(console: Console, draw: Draw, *, interval_s: float, frames: int | None = None) -> None:
    """Until Ctrl-C, or so many times. The first look may fail; later an absent coordinator is
    only told, for it may come back."""
    live = Live(Group(*draw()), console=console, screen=console.is_terminal, auto_refresh=False)
    try:
        # Not `with`: a key pressed while it starts would leave the screen taken.
        live.start(refresh=True)
        shown = 1
        while frames is None or shown < frames:
            time.sleep(interval_s)
            live.update(_look(draw), refresh=True)
            shown += 1
    finally:
        live.stop()


def _look(draw: Draw) -> Group:
    try:
        return Group(*draw())
    except CoordinatorUnreachable as error:
        return Group(Text(clean(error)))
