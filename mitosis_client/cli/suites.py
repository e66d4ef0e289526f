"""`mitosis suites`: make, look at and steer campaigns."""

from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from mitosis_client.arrays import submit_rows
from mitosis_client.cli.arguments import SuiteArgument, WatchOption
from mitosis_client.cli.exit_codes import FAILURE
from mitosis_client.cli.explaining import print_explanation
from mitosis_client.cli.export import export
from mitosis_client.cli.output import Column, counted, short, warn
from mitosis_client.cli.run import new_suite
from mitosis_client.cli.session import Session, session_of
from mitosis_client.cli.watching import present
from mitosis_client.errors import ConfigError
from mitosis_client.follow import wait_for_suite
from mitosis_client.models import Suite
from mitosis_client.outage import Outage
from mitosis_client.suite_file import SuiteFile, read_suite

app = typer.Typer(help="Campaigns of tasks.", no_args_is_help=True)
app.command()(export)


def state_of(one: Suite) -> str:
    if one.blocked_reason:
        return f"{one.state} (blocked)"
    return f"{one.state} (paused)" if one.is_paused else one.state


COLUMNS: Final[list[Column[Suite]]] = [
    ("id", lambda one: short(one.uuid)),
    ("name", lambda one: one.name),
    ("state", state_of),
    ("tasks", lambda one: one.total_tasks),
    ("left", lambda one: one.pending_tasks),
    ("ok", lambda one: one.succeeded_tasks),
    ("failed", lambda one: one.failed_tasks),
    ("group", lambda one: one.group_name),
    ("created", lambda one: one.created_at[:19]),
]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="suites")


@app.command()
def create(  # noqa: PLR0913, PLR0917 - every flag of a command is a parameter
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument()] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="YAML, TOML or JSON.")] = None,
    workers: Annotated[int, typer.Option("--workers", "-w", min=1, help="Per host.")] = 4,
    prep: Annotated[str | None, typer.Option(help="Shell line, once per host before.")] = None,
    cleanup: Annotated[str | None, typer.Option(help="Shell line, once per host after.")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Hosts need it.")] = None,
) -> None:
    """Make a suite from flags, or from a file that may hold its tasks too."""
    session = session_of(ctx)
    if file is not None:
        if prep or cleanup or tags or name:
            raise ConfigError("with --file everything is said in the file")
        _from_file(session, read_suite(file, group=session.group))
        return
    spec = new_suite(session.group, name, workers, hooks=(prep, cleanup), tags=tags or [])
    made = session.client.suites.create(spec)
    session.printer.done(f"Suite {made.uuid} is {made.state}.", made, id_=made.uuid)


def _from_file(session: Session, file: SuiteFile) -> None:
    made = session.client.suites.create(file.spec)
    submitted = [
        submit_rows(session.client, block.template(file.spec.group_name, made.uuid), rows)
        for block, rows in file.blocks
    ]
    count = sum(one.count for one in submitted)
    uuids = [uuid for one in submitted for uuid in one.uuids]
    session.printer.done(
        f"Suite {made.uuid} is {made.state}, with {counted(count, 'task')}.",
        {**made.as_dict(), "count": count, "uuids": uuids},
        id_=made.uuid,
    )


@app.command("list")
def list_(
    ctx: typer.Context,
    state: Annotated[list[str] | None, typer.Option(help="Only these states.")] = None,
    name: Annotated[str | None, typer.Option(help="Part of the name.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1)] = 50,
    watch: WatchOption = False,
) -> None:
    """Suites of your groups, newest first."""
    session = session_of(ctx)

    def look() -> None:
        found = session.client.suites.list(
            group_name=session.settings.group, states=state, name=name
        )
        rows = list(islice(found, limit + 1))
        session.printer.rows(rows[:limit], COLUMNS, id_of=lambda one: one.uuid)
        if len(rows) > limit and not watch:
            warn(f"there are more than {limit}; --limit N shows more")

    present(session.printer, look, watch=watch)


@app.command()
def show(ctx: typer.Context, suite: SuiteArgument, watch: WatchOption = False) -> None:
    """Everything about one suite."""
    session = session_of(ctx)
    uuid = session.suite(suite)

    def look() -> None:
        session.printer.one(session.client.suites.show(uuid), id_=uuid)

    present(session.printer, look, watch=watch)


@app.command()
def wait(
    ctx: typer.Context,
    suite: SuiteArgument,
    timeout: Annotated[float | None, typer.Option(help="Seconds; then status 124.")] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help="Until the suite itself is over.")
    ] = False,
) -> None:
    """Until no task is left. Status 1 if any did not succeed."""
    session = session_of(ctx)
    found = wait_for_suite(
        session.client,
        session.suite(suite),
        timeout_s=timeout,
        until_complete=complete,
        outage=Outage(warn),
    )
    bad = found.failed_tasks + found.cancelled_tasks
    session.printer.done(
        f"{found.ended_tasks} ended: {found.succeeded_tasks} succeeded, {bad} did not.",
        found,
        id_=found.uuid,
    )
    raise typer.Exit(FAILURE if bad else 0)


@app.command()
def close(ctx: typer.Context, suite: SuiteArgument) -> None:
    """No more tasks will come: it completes when the last one ends."""
    _live(ctx, suite, "close")


@app.command()
def reopen(ctx: typer.Context, suite: SuiteArgument) -> None:
    """Take tasks again."""
    _live(ctx, suite, "reopen")


@app.command()
def pause(ctx: typer.Context, suite: SuiteArgument) -> None:
    """Hand out nothing more; what runs goes on."""
    _live(ctx, suite, "pause")


@app.command()
def resume(ctx: typer.Context, suite: SuiteArgument) -> None:
    """End a pause or a block."""
    _live(ctx, suite, "resume")


@app.command()
def scale(
    ctx: typer.Context,
    suite: SuiteArgument,
    workers: Annotated[int | None, typer.Option("--workers", "-w", min=1)] = None,
    max_running: Annotated[int | None, typer.Option(min=1, help="Over all hosts.")] = None,
) -> None:
    """Change how many workers each host gets, or how many tasks run at a time."""
    session = session_of(ctx)
    if workers is None and max_running is None:
        raise ConfigError("scale needs --workers or --max-running")
    found = session.client.suites.scale(
        session.suite(suite), workers=workers, prefetch=workers or 0, max_running=max_running
    )
    session.printer.done(f"Suite {found.uuid} is scaled.", found, id_=found.uuid)


@app.command()
def cancel(
    ctx: typer.Context,
    suite: SuiteArgument,
    reason: Annotated[str | None, typer.Option(help="Kept with the suite.")] = None,
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="What runs may end by itself.")
    ] = False,
) -> None:
    """Cancel a suite and its tasks, for good."""
    session = session_of(ctx)
    uuid = session.suite(suite)
    done = session.client.suites.cancel(uuid, reason=reason, cancel_running_tasks=not keep_running)
    session.printer.done(f"Cancelled {counted(done.cancelled_task_count, 'task')}.", done, id_=uuid)


@app.command()
def rerun(
    ctx: typer.Context,
    suite: SuiteArgument,
    failed: Annotated[
        bool, typer.Option("--failed", help="Everything that did not succeed (the default).")
    ] = False,
    outcome: Annotated[list[str] | None, typer.Option(help="Only what ended so.")] = None,
) -> None:
    """Run ended tasks again, as new tasks."""
    session = session_of(ctx)
    if failed and outcome:
        raise ConfigError("--failed and --outcome exclude each other")
    uuid = session.suite(suite)
    count, made = 0, session.client.suites.rerun(uuid, outcomes=outcome)
    tasks = list(made.tasks)
    while made.has_more and made.count:
        made = session.client.suites.rerun(uuid, outcomes=outcome)
        tasks += made.tasks
    count = len(tasks)
    answer = {"count": count, "tasks": [one.as_dict() for one in tasks]}
    session.printer.done(f"{counted(count, 'task')} to run again.", answer, id_=uuid)


@app.command()
def explain(ctx: typer.Context, suite: SuiteArgument, watch: WatchOption = False) -> None:
    """Why its tasks wait, host by host."""
    session = session_of(ctx)
    uuid = session.suite(suite)

    def look() -> None:
        print_explanation(session.printer, session.client.suites.explain(uuid))

    present(session.printer, look, watch=watch)


def _live(ctx: typer.Context, suite: str, verb: str) -> None:
    session = session_of(ctx)
    verbs = session.client.suites
    act = {"close": verbs.close, "reopen": verbs.reopen, "pause": verbs.pause,
           "resume": verbs.resume}[verb]  # fmt: skip
    found = act(session.suite(suite))
    paused = ", paused" if found.is_paused else ""
    before = "" if found.changed else " (it was before)"
    session.printer.done(f"Suite {found.uuid} is {found.suite_state}{paused}{before}.", found,
                         id_=found.uuid)  # fmt: skip
