"""`explain` for suites and tasks, as a person reads it; `mitosis explain` finds which is meant."""

from typing import Annotated

import typer

from mitosis_client.cli.arguments import WatchOption
from mitosis_client.cli.output import Printer, short
from mitosis_client.cli.session import session_of
from mitosis_client.cli.watching import present
from mitosis_client.errors import NotFound
from mitosis_client.models import Explanation


def explain(
    ctx: typer.Context,
    id_: Annotated[str, typer.Argument(metavar="SUITE|TASK")],
    watch: WatchOption = False,
) -> None:
    """Why a suite or a task waits, and the smallest change that lets it run."""
    session = session_of(ctx)
    try:
        uuid, ask = session.suite(id_), session.client.suites.explain
        found = ask(uuid)
    except NotFound:
        uuid, ask = session.task(id_), session.client.tasks.explain
        found = ask(uuid)
    if not watch:
        print_explanation(session.printer, found)
        return
    present(session.printer, lambda: print_explanation(session.printer, ask(uuid)), watch=True)


def print_explanation(printer: Printer, found: Explanation) -> None:
    if not printer.is_table:
        printer.one(found, id_="yes" if found.can_run else "no")
        return
    lines = [found.summary]
    lines += [f"  {obstacle.text}: {obstacle.fix}" for obstacle in found.obstacles]
    for verdict in [*found.managers, *found.workers]:
        lines.append(f"{verdict.kind} {short(verdict.uuid)}: {verdict.verdict}")
        lines += [f"  {obstacle.text}: {obstacle.fix}" for obstacle in verdict.obstacles]
    if found.smallest_change:
        lines.append(f"Smallest change: {'; '.join(found.smallest_change)}")
    printer.lines(lines)
