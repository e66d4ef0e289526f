"""`mitosis up`, `down` and `status`: the embedded stack from the command line."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mitosis_client.cli.output import json_text, say
from mitosis_client.cli.session import session_of
from mitosis_stack import commands
from mitosis_stack.coordinator import SERVERS
from mitosis_stack.settings import default_data_dir, read_settings
from mitosis_stack.state import StackState

# What init scripts expect of `status` when the service does not run.
EXIT_NOT_RUNNING = 3
EXIT_NOT_READY = 1

DataDirOption = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="D", help="Where everything lives.", show_default=False),
]


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.command()(down)
    app.command()(status)


def up(
    data_dir: DataDirOption = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Of the console and the API (default 5000; 0: any)."),
    ] = None,
    agents: Annotated[int, typer.Option(min=0, max=64, help="Node agents to start.")] = 1,
    detach: Annotated[bool, typer.Option("--detach", help="Return once it is ready.")] = False,
    server: Annotated[str, typer.Option(help=f"ASGI server: {' or '.join(SERVERS)}.")] = "uvicorn",
) -> None:
    """Start PostgreSQL, Valkey, S3, the coordinator and node agents; Ctrl-C stops all of it."""
    settings = read_settings(data_dir=data_dir, port=port, agents=agents, asgi_server=server)
    say(f"Starting Mitosis in {settings.data_dir}")
    run = commands.up_detached if detach else commands.up
    raise typer.Exit(run(settings, say, lambda credentials: _greet(credentials, detach=detach)))


def down(data_dir: DataDirOption = None) -> None:
    """Stop the stack and wait until its last process is gone."""
    raise typer.Exit(commands.down(_where(data_dir), say))


def status(
    ctx: typer.Context,
    data_dir: DataDirOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
) -> None:
    """Say what runs. Exit status 0: ready, 1: runs but not ready, 3: does not run."""
    where = _where(data_dir)
    found = commands.status(where)
    output = "json" if as_json else session_of(ctx).printer.output
    if output == "json":
        shown = asdict(found.state) if found.running and found.state else None
        say(
            json_text({"running": found.running, "ready": found.ready, "stack": shown}, indent=None)
        )
    elif output == "quiet":
        say("ready" if found.ready else "running" if found.running else "stopped")
    elif not found.running:
        say(f"No stack runs on {where}.")
    elif found.state is not None:
        _print_table(found.state, ready=found.ready)
    if not found.running:
        raise typer.Exit(EXIT_NOT_RUNNING)
    raise typer.Exit(0 if found.ready else EXIT_NOT_READY)


def _where(data_dir: Path | None) -> Path:
    return (data_dir or default_data_dir()).expanduser().absolute()


def _greet(credentials: commands.Credentials, *, detach: bool) -> None:
    say("")
    say(f"  Console   {credentials.url}/console/")
    say(f"  Admin     {credentials.url}/admin/")
    say(f"  API       {credentials.url}/api/docs")
    say(f"  User      {credentials.username}")
    say(f"  Password  {credentials.password}")
    say("")
    say("Running in the background." if detach else "Press Ctrl-C to stop.")


def _print_table(state: StackState, *, ready: bool) -> None:
    table = Table(title=f"{state.url}  {'ready' if ready else state.phase + ', not ready'}")
    for column in ("part", "pid", "state", "up", "restarts", "log"):
        table.add_column(column)
    now = time.time()  # noqa: TID251 - the state file carries wall-clock times for people
    for child in state.children.values():
        age = f"{max(0, now - child.started_at):.0f} s"
        table.add_row(child.name, str(child.pid), child.state, age, str(child.restarts), child.log)
    Console().print(table)
