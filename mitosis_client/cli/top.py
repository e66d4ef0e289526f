"""`mitosis top`: suites and hosts, full screen, once a second."""

import time
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from mitosis_client.cli import managers, suites
from mitosis_client.cli.output import clean
from mitosis_client.cli.screen import repeat
from mitosis_client.cli.session import Session, session_of
from mitosis_client.cli.tables import table_of
from mitosis_client.errors import ConfigError
from mitosis_client.models import Suite

SHOWN: Final = 15


def register(parent: typer.Typer) -> None:
    parent.command()(top)


def top(
    ctx: typer.Context,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between looks.")] = 1.0,
    frames: Annotated[int | None, typer.Option(min=1, help="End after so many.")] = None,
) -> None:
    """Suites and hosts, live. Ctrl-C ends it."""
    session = session_of(ctx)
    console = session.printer.console
    if not console.is_terminal and frames is None:
        raise ConfigError("top needs a terminal, or --frames N")
    repeat(console, View(session).draw, interval_s=interval, frames=frames)


class View:
    """The picture, and what is needed to tell a rate."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ended: tuple[float, int] | None = None

    def draw(self) -> list[RenderableType]:
        client = self._session.client
        listed = client.suites.list(group_name=self._session.settings.group)
        found = [one for _, one in zip(range(200), listed, strict=False)]
        hosts = list(client.fleet.managers(group_name=self._session.settings.group))
        busy = sorted(found, key=lambda one: (one.pending_tasks == 0, one.state != "Open"))
        left = sum(one.pending_tasks for one in found)
        head = f"{client.url}   {left} tasks left   {self._rate(found):.1f}/s"
        return [
            Text(clean(head), style="bold"),
            Text(),
            table_of(busy[:SHOWN], suites.COLUMNS),
            Text(),
            table_of(hosts[:SHOWN], managers.COLUMNS),
        ]

    def _rate(self, found: list[Suite]) -> float:
        now, ended = time.monotonic(), sum(one.ended_tasks for one in found)
        before, self._ended = self._ended, (now, ended)
        if before is None or now <= before[0]:
            return 0.0
        return max(0.0, (ended - before[1]) / (now - before[0]))
