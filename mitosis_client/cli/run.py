"""`mitosis run`: a suite, a sweep of tasks and the wait for them in one line."""

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from mitosis_client.arrays import cancel_tasks, submit_rows
from mitosis_client.calls.tasks import NewTask
from mitosis_client.cli.exit_codes import FAILURE, INTERRUPTED
from mitosis_client.cli.hints import Hints
from mitosis_client.cli.output import clean, counted
from mitosis_client.cli.session import Session, session_of
from mitosis_client.errors import (
    ConfigError,
    Conflict,
    CoordinatorUnreachable,
    ServerError,
    WaitTimedOut,
)
from mitosis_client.follow import SUCCEEDED, Ended, Follower
from mitosis_client.models import SubmittedArray
from mitosis_client.outage import Outage
from mitosis_client.params import checked_rows, rows_of, split_command, values_of
from mitosis_client.suite_file import hook_of, schedule_of
from mitosis_protocol.suites import SuiteSpec

if TYPE_CHECKING:
    from mitosis_client.cli.progress import RunProgress


def register(app: typer.Typer) -> None:
    app.command(context_settings={"allow_interspersed_args": False})(run)


def run(  # noqa: PLR0913, PLR0917 - every flag of a command is a parameter
    ctx: typer.Context,
    command: Annotated[
        list[str], typer.Argument(help="`-- cmd {x} --x 1..100`: command, then values.")
    ],
    suite: Annotated[
        str | None,
        typer.Option(help="Name of the suite: an open one, or a new one. Without: one of its own."),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", "-w", min=1, help="Per host.")] = 4,
    prep: Annotated[str | None, typer.Option(help="Runs once per host before the tasks.")] = None,
    cleanup: Annotated[str | None, typer.Option(help="Runs once per host after them.")] = None,
    rows: Annotated[
        Path | None, typer.Option(help="CSV, JSON or JSON lines: one row of values per task.")
    ] = None,
    param: Annotated[list[str] | None, typer.Option("--param", "-p", metavar="NAME=VALUES")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Hosts need this tag.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE")] = None,
    timeout: Annotated[str, typer.Option(help="Of each task, like 1h 30m.")] = "1h",
    wait: Annotated[bool, typer.Option("--wait", help="Until all tasks have ended.")] = False,
    wait_timeout: Annotated[
        float | None, typer.Option(help="Seconds after which --wait gives up (status 124).")
    ] = None,
) -> None:
    """Run a command once for every combination of values.

    Values: 1..100, 0..1:0.25, a,b,c or @file (a line each).
    """
    session = session_of(ctx)
    words, found = split_command(command)
    found = {**pairs(param or [], "--param"), **found}
    sweep = checked_rows(
        words,
        {name: values_of(text) for name, text in found.items()},
        rows_of(rows) if rows else (),
    )
    template = NewTask(
        args=words, group_name=session.group, envs=pairs(env or [], "--env"), timeout=timeout
    )
    template.body()  # a mistake in it must not leave an empty suite behind
    follower = Follower(session.client) if wait else None
    spec = new_suite(session.group, suite, workers, hooks=(prep, cleanup), tags=tags or [])
    uuid = ensure_suite(session, suite, spec)
    template = msgspec.structs.replace(template, suite_uuid=uuid)
    submitted = submit_rows(session.client, template, sweep)
    if suite is None:
        _close(session, uuid)
    if follower is None:
        session.printer.done(
            f"{counted(submitted.count, 'task')} in suite {uuid}", submitted.as_dict(), id_=uuid
        )
        return
    follower.add(submitted.uuids)
    raise typer.Exit(_wait(session, follower, submitted, uuid, wait_timeout))


def pairs(texts: list[str], flag: str) -> dict[str, str]:
    """`NAME=VALUE` options as a mapping."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"{flag} wants NAME=VALUE, not {text!r}")
        found[name] = value
    return found


def new_suite(
    group: str,
    name: str | None,
    workers: int,
    *,
    hooks: tuple[str | None, str | None] = (None, None),
    tags: list[str],
) -> SuiteSpec:
    prep, cleanup = (hook_of(text) for text in hooks)
    return SuiteSpec(
        group_name=group,
        name=name,
        worker_schedule=schedule_of(workers),
        env_preparation=prep,
        env_cleanup=cleanup,
        tags=tags,
    )


def ensure_suite(session: Session, name: str | None, spec: SuiteSpec) -> str:
    """The newest suite of that name in the group; a new one if there is none, or for hooks."""
    if name is not None and spec.env_preparation is None and spec.env_cleanup is None:
        for one in session.client.suites.list(
            group_name=spec.group_name, name=name, states=["Open", "Closed", "Complete"]
        ):
            if one.name == name:
                return one.uuid
    return session.client.suites.create(spec).uuid


def _close(session: Session, suite: str) -> None:
    """What has no name gets no more tasks: it completes when the last one ends.

    The tasks are safe already, so trouble here is none: left open, it is closed when it idles.
    """
    with contextlib.suppress(CoordinatorUnreachable, Conflict, ServerError):
        session.client.suites.close(suite)


def _wait(
    session: Session, follower: Follower, submitted: SubmittedArray, suite: str,
    timeout_s: float | None,
) -> int:  # fmt: skip
    """Ctrl-C leaves the tasks to themselves; a second one within the question cancels them."""
    # Only now, while the tasks run already: bars take 60 ms to import.
    from mitosis_client.cli.progress import RunProgress  # noqa: PLC0415

    printer = session.printer
    progress = RunProgress(submitted.count, quiet=printer.output == "quiet")
    follower.outage = Outage(progress.note)
    hints = Hints(session.client, suite, progress.note)
    try:
        # Inside, for the key may be pressed while the bar is first drawn.
        progress.start()

        def ended(one: Ended) -> None:
            progress.ended(one)
            hints.heard()

        follower.wait(ended, tick=hints.look, timeout_s=timeout_s)
    except KeyboardInterrupt:
        return _detach(session, follower, progress, suite)
    finally:
        progress.stop()
    outcomes = dict(follower.outcomes)
    answer: dict[str, Any] = {
        "suite_uuid": suite,
        "count": submitted.count,
        "outcomes": outcomes,
        "uuids": submitted.uuids,
    }
    printer.done(f"Suite {suite}: {progress.summary(outcomes)}", answer, id_=suite)
    return 0 if outcomes == {SUCCEEDED: submitted.count} else FAILURE


def _detach(session: Session, follower: Follower, progress: "RunProgress", suite: str) -> int:
    left = follower.waiting
    try:
        progress.console.print(
            f"Detached: {counted(len(left), 'task')} left to run. Again within 3 s: cancel them. "
            f"Later: mitosis suites wait {suite}"
        )
        follower.wait(lambda _: None, timeout_s=3)
    except KeyboardInterrupt:
        cancelled = cancel_tasks(session.client, sorted(left)).cancelled_count
        progress.console.print(f"Cancelled {counted(cancelled, 'task')}.")
    except WaitTimedOut:
        return INTERRUPTED
    return INTERRUPTED


def shown_command(args: list[str]) -> str:
    """A command as one would type it."""
    return clean(shlex.join(args))
