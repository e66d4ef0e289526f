"""`mitosis doctor`: is this host fit for a node agent?"""

from pathlib import Path
from typing import Annotated, Final

import typer

from mitosis_client.cli.exit_codes import FAILURE
from mitosis_client.cli.output import Column
from mitosis_client.cli.session import session_of
from mitosis_client.host_checks import Check, check_host

COLUMNS: Final[list[Column[Check]]] = [
    ("", lambda one: {"ok": "ok", "warning": "warn"}.get(one.level, "FAIL")),
    ("check", lambda one: one.name),
    ("found", lambda one: one.found),
    ("advice", lambda one: one.fix),
]


def register(parent: typer.Typer) -> None:
    parent.command()(doctor)


def doctor(
    ctx: typer.Context,
    data_dir: Annotated[Path, typer.Option(help="Where the agent would live.")] = Path.home(),
) -> None:
    """Check this host for an agent: cgroups, IPC, disk, clock, coordinator. Status 1: unfit."""
    session = session_of(ctx)
    found = check_host(session.settings.coordinator.rstrip("/"), data_dir)
    session.printer.rows(found, COLUMNS, id_of=lambda one: f"{one.level} {one.name}")
    raise typer.Exit(FAILURE if any(one.level == "error" for one in found) else 0)
