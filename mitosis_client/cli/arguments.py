"""Arguments and options that several commands share."""

from typing import Annotated, TypeAlias

import typer

SuiteArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="SUITE", help="Uuid, prefix, name or last.")
]
SuiteOption: TypeAlias = Annotated[
    str | None, typer.Option("--suite", help="Uuid, prefix, name or last.")
]
TaskArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="TASK", help="Uuid, prefix or number.")
]
ManagerArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="MANAGER", help="Uuid or prefix.")
]
WorkerArgument: TypeAlias = Annotated[str, typer.Argument(metavar="WORKER", help="Uuid or prefix.")]
WatchOption: TypeAlias = Annotated[
    bool, typer.Option("--watch", help="Again every second, until Ctrl-C.")
]
