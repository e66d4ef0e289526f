"""Tables on a terminal. Every text in them is made harmless first."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mitosis_client.cli.output import Column, clean, json_text

T = TypeVar("T")


def new_console(*, stderr: bool = False) -> Console:
    # Markup off: a suite called "[red]" is called that, and not red.
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def table_of(items: Iterable[T], columns: Sequence[Column[T]], *, title: str = "") -> Table:
    table = Table(
        title=cell(title) if title else None, box=None, pad_edge=False, header_style="bold"
    )
    for name, _ in columns:
        table.add_column(name, overflow="fold")
    for item in items:
        table.add_row(*(cell(read(item)) for _, read in columns))
    return table


def members_of(members: Mapping[str, Any], *, title: str = "") -> Table:
    table = Table(title=cell(title) if title else None, box=None, pad_edge=False, show_header=False)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("value", overflow="fold")
    for name, value in members.items():
        if value not in (None, "", [], {}):
            table.add_row(cell(name), cell(value))
    return table


def cell(value: object) -> Text:
    """A value as it may stand in a table."""
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, list | tuple | dict):
        simple = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return Text(clean(", ".join(value)) if simple else json_text(value, indent=None))
    return Text("" if value is None else clean(value))
