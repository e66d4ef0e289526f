"""`mitosis tasks` and `mitosis artifacts`: single tasks, their output and their archives."""

import codecs
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from mitosis_client.arrays import cancel_tasks, submit_rows
from mitosis_client.calls.tasks import NewTask
from mitosis_client.cli.arguments import SuiteOption, TaskArgument, WatchOption
from mitosis_client.cli.explaining import explain as explain_any
from mitosis_client.cli.explaining import print_explanation
from mitosis_client.cli.output import Column, clean, counted, short, warn
from mitosis_client.cli.run import pairs, shown_command
from mitosis_client.cli.session import Session, session_of
from mitosis_client.cli.watching import present
from mitosis_client.errors import ConfigError, NotFound
from mitosis_client.models import Artifact, Task
from mitosis_client.params import checked_rows, rows_of, split_command, values_of
from mitosis_client.task_output import missing_tail

app = typer.Typer(help="Single tasks.", no_args_is_help=True)
artifacts_app = typer.Typer(help="Archives that tasks leave.", no_args_is_help=True)

RAW: Final = {"allow_interspersed_args": False}
TYPES: Final = ("result", "exec-log", "std-log")

COLUMNS: Final[list[Column[Task]]] = [
    ("id", lambda one: short(one.uuid)),
    ("no", lambda one: one.task_id),
    ("state", lambda one: one.state),
    ("outcome", lambda one: one.outcome),
    ("exit", lambda one: one.exit_code),
    ("tries", lambda one: one.attempt),
    ("suite", lambda one: short(one.suite_uuid)),
    ("command", lambda one: shown_command(one.args)[:80]),
]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="tasks")
    parent.add_typer(artifacts_app, name="artifacts")
    parent.command("explain")(explain_any)


@app.command(context_settings=RAW)
def submit(  # noqa: PLR0913, PLR0917 - every flag of a command is a parameter
    ctx: typer.Context,
    command: Annotated[list[str], typer.Argument(help="Behind `--`.")],
    suite: SuiteOption = None,
    timeout: Annotated[str, typer.Option(help="Like 1h 30m.")] = "1h",
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE")] = None,
    priority: Annotated[int, typer.Option()] = 0,
    tags: Annotated[list[str] | None, typer.Option("--tag")] = None,
) -> None:
    """One task; without a suite it waits for an independent worker."""
    session = session_of(ctx)
    task = NewTask(
        args=command,
        group_name=session.group,
        suite_uuid=None if suite is None else session.suite(suite),
        envs=pairs(env or [], "--env"),
        timeout=timeout,
        priority=priority,
        tags=tags or [],
    )
    made = session.client.tasks.submit(task)
    session.printer.done(f"Task {made.uuid}", made, id_=made.uuid)


@app.command(context_settings=RAW)
def array(
    ctx: typer.Context,
    command: Annotated[list[str], typer.Argument(help="`-- cmd {x} --x 1..100`")],
    suite: SuiteOption = None,
    rows: Annotated[Path | None, typer.Option(help="CSV, JSON or JSON lines.")] = None,
    timeout: Annotated[str, typer.Option(help="Like 1h 30m.")] = "1h",
) -> None:
    """One task for every combination of values, in an existing suite or in none."""
    session = session_of(ctx)
    words, found = split_command(command)
    values = {name: values_of(text) for name, text in found.items()}
    sweep = checked_rows(words, values, rows_of(rows) if rows else ())
    template = NewTask(
        args=words,
        group_name=session.group,
        suite_uuid=None if suite is None else session.suite(suite),
        timeout=timeout,
    )
    made = submit_rows(session.client, template, sweep)
    session.printer.done(counted(made.count, "task"), made, ids=made.uuids)


@app.command("list")
def list_(
    ctx: typer.Context,
    suite: SuiteOption = None,
    state: Annotated[list[str] | None, typer.Option(help="Only these states.")] = None,
    outcome: Annotated[list[str] | None, typer.Option(help="Only what ended so.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1)] = 100,
    watch: WatchOption = False,
) -> None:
    """Tasks of the group, oldest first."""
    session = session_of(ctx)
    uuid = None if suite is None else session.suite(suite)

    def look() -> None:
        found = session.client.tasks.list(
            group_name=session.settings.group, suite_uuid=uuid, states=state
        )
        wanted = (one for one in found if not outcome or one.outcome in outcome)
        rows = list(islice(wanted, limit + 1))
        session.printer.rows(rows[:limit], COLUMNS, id_of=lambda one: one.uuid)
        if len(rows) > limit and not watch:
            warn(f"there are more than {limit}; --limit N shows more")

    present(session.printer, look, watch=watch)


@app.command()
def show(ctx: typer.Context, task: TaskArgument, watch: WatchOption = False) -> None:
    """Everything about one task."""
    session = session_of(ctx)
    uuid = session.task(task)

    def look() -> None:
        found = session.client.tasks.show(uuid)
        if session.printer.output == "json":
            session.printer.one(found)
            return
        members = {**found.info.as_dict(), "exit_code": found.info.exit_code}
        session.printer.one(members, id_=uuid)
        if session.printer.is_table:
            _print_artifacts(session, found.artifacts, uuid)

    present(session.printer, look, watch=watch)


@app.command()
def logs(
    ctx: typer.Context,
    task: TaskArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the task ends.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Instead of stdout.")] = False,
) -> None:
    """Output of a task; bytes as they are into a pipe, made harmless on a terminal."""
    session = session_of(ctx)
    uuid = session.task(task)
    stream, offset, pause_s = "stderr" if stderr else "stdout", 0, 0.1
    write = _Writer()
    while True:
        part = session.client.log(uuid, stream, offset=offset)
        offset = part.next_offset
        write(part.data)
        if part.is_complete:
            write(missing_tail(session.client, uuid, stream, offset))
            return
        if not (follow or part.data):
            return
        pause_s = 0.1 if part.data else min(1.0, pause_s * 1.5)
        if not part.data:
            time.sleep(pause_s)


@app.command()
def cancel(ctx: typer.Context, tasks: list[str]) -> None:
    """Cancel tasks; one that runs is told to stop."""
    session = session_of(ctx)
    uuids = [session.task(text) for text in tasks]
    done = cancel_tasks(session.client, uuids)
    if done.failed_uuids and not done.cancelled_count:
        raise NotFound(f"not to be cancelled: {', '.join(done.failed_uuids)}", status=404)
    session.printer.done(f"Cancelled {counted(done.cancelled_count, 'task')}.", done, ids=uuids)


@app.command()
def rerun(ctx: typer.Context, tasks: list[str]) -> None:
    """Run ended tasks of a suite again, as new tasks."""
    session = session_of(ctx)
    made = []
    for text in tasks:
        uuid = session.task(text)
        info = session.client.tasks.show(uuid).info
        if info.suite_uuid is None:
            raise ConfigError(f"task {uuid} has no suite: submit it again")
        outcomes = [info.outcome] if info.outcome else None
        found = session.client.suites.rerun(info.suite_uuid, outcomes=outcomes, task_uuids=[uuid])
        if not found.count:
            why = "has not ended yet" if info.outcome is None else "was run again before"
            raise ConfigError(f"task {uuid} {why}")
        made += found.tasks
    session.printer.rows(
        made, [("id", lambda one: one.uuid), ("rerun of", lambda one: one.rerun_of)],
        id_of=lambda one: one.uuid,
    )  # fmt: skip


@app.command()
def explain(ctx: typer.Context, task: TaskArgument, watch: WatchOption = False) -> None:
    """Why it waits."""
    session = session_of(ctx)
    uuid = session.task(task)

    def look() -> None:
        print_explanation(session.printer, session.client.tasks.explain(uuid))

    present(session.printer, look, watch=watch)


@app.command()
@artifacts_app.command("list")
def artifacts(ctx: typer.Context, task: TaskArgument) -> None:
    """The archives of a task."""
    session = session_of(ctx)
    uuid = session.task(task)
    _print_artifacts(session, session.client.tasks.show(uuid).artifacts, uuid)


@artifacts_app.command()
def download(
    ctx: typer.Context,
    task: TaskArgument,
    type_: Annotated[str, typer.Option("--type", help=f"{', '.join(TYPES)}.")] = "result",
    to: Annotated[Path | None, typer.Option(help="File; else TASK-TYPE.tar.gz.")] = None,
) -> None:
    """Fetch an archive (tar.gz)."""
    session = session_of(ctx)
    uuid = session.task(task)
    path = to or Path(f"{uuid}-{_type(type_)}.tar.gz")
    size = session.client.files.download_artifact(uuid, _type(type_), path)
    session.printer.done(f"{path}: {size} bytes", {"path": str(path), "size": size}, id_=str(path))


@artifacts_app.command()
def delete(
    ctx: typer.Context,
    task: TaskArgument,
    type_: Annotated[str, typer.Option("--type", help=f"{', '.join(TYPES)}.")] = "result",
) -> None:
    """Delete an archive that has not changed for an hour."""
    session = session_of(ctx)
    session.client.tasks.delete_artifact(session.task(task), _type(type_))
    session.printer.done("Deleted.")


def _type(text: str) -> str:
    if text not in TYPES:
        raise ConfigError(f"--type: one of {', '.join(TYPES)}")
    return text


def _print_artifacts(session: Session, found: list[Artifact], uuid: str) -> None:
    columns: list[Column[Artifact]] = [
        ("archive", lambda one: one.content_type),
        ("bytes", lambda one: one.size),
        ("created", lambda one: one.created_at[:19]),
    ]
    session.printer.rows(found, columns, id_of=lambda one: f"{uuid}/{one.content_type}")


class _Writer:
    """A terminal must not obey a task's output; a pipe gets it byte by byte."""

    def __init__(self) -> None:
        # A character may be cut in two by the end of a part.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def __call__(self, data: bytes) -> None:
        if sys.stdout.isatty():
            sys.stdout.write(clean(self._decoder.decode(data), keep="\n\t"))
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()
