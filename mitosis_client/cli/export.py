"""`mitosis suites export`: a suite and all of its tasks as JSON, JSON lines or CSV."""

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from mitosis_client.cli.arguments import SuiteArgument
from mitosis_client.cli.output import json_text, say
from mitosis_client.cli.session import session_of
from mitosis_client.errors import ConfigError, MitosisError
from mitosis_client.models import SuiteDetail, Task

FORMATS: Final = ("json", "jsonl", "csv")
FIELDS: Final = (
    "uuid", "task_id", "state", "outcome", "exit_code", "attempt", "created_at", "updated_at",
    "args",
)  # fmt: skip


def export(
    ctx: typer.Context,
    suite: SuiteArgument,
    format_: Annotated[str, typer.Option("--format", help="json, jsonl or csv.")] = "json",
    to: Annotated[Path | None, typer.Option(help="A file instead of standard output.")] = None,
) -> None:
    """A suite and its tasks for other programs."""
    session = session_of(ctx)
    if format_ not in FORMATS:
        raise ConfigError(f"--format: one of {', '.join(FORMATS)}")
    uuid = session.suite(suite)
    detail = session.client.suites.show(uuid)
    tasks = session.client.tasks.list(group_name=detail.group_name, suite_uuid=uuid)
    lines = _lines(format_, detail, tasks)
    if to is None:
        for line in lines:
            say(line)
        return
    try:
        with to.open("w", encoding="utf-8") as opened:
            opened.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise MitosisError(f"{to}: {error.strerror}") from error
    session.printer.done(f"Wrote {to}.", id_=uuid)


def _lines(format_: str, detail: SuiteDetail, tasks: Iterable[Task]) -> Iterator[str]:
    if format_ == "json":
        rows = [{**one.as_dict(), "exit_code": one.exit_code} for one in tasks]
        yield json_text({"suite": detail.as_dict(), "tasks": rows})
    elif format_ == "jsonl":
        for one in tasks:
            yield json_text({**one.as_dict(), "exit_code": one.exit_code}, indent=None)
    else:
        yield ",".join(FIELDS)
        for one in tasks:
            yield _csv(one)


def _csv(one: Task) -> str:
    # The command as JSON: its words may hold anything, line breaks and escapes included.
    members = {
        **one.as_dict(),
        "exit_code": one.exit_code,
        "args": json_text(one.args, indent=None),
    }
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([members[name] for name in FIELDS])
    return line.getvalue()
