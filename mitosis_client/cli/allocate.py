"""`mitosis allocate slurm`: node agents as Slurm jobs, as many as the backlog needs."""

import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from mitosis_client.allocate.job_script import JobPlan
from mitosis_client.allocate.loop import Allocator
from mitosis_client.allocate.places import Place, check_token_file
from mitosis_client.allocate.plan import Allocation
from mitosis_client.allocate.slurm import Slurm
from mitosis_client.allocate.values import Limits, Scope, Submit
from mitosis_client.cli.output import clean, json_text, say
from mitosis_client.cli.session import Session, session_of
from mitosis_client.errors import ConfigError, NotLoggedIn
from mitosis_client.settings import environment
from mitosis_protocol.durations import parse_duration

app = typer.Typer(help="Agents on machines of a batch system.", no_args_is_help=True)

AGENT: Final = (sys.executable, "-m", "nodeagent")


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="allocate")


@app.callback()
def allocate() -> None:
    """Agents on machines of a batch system."""


@app.command()
def slurm(  # noqa: PLR0913 - one parameter per flag is how typer reads them
    ctx: typer.Context,
    *,
    max_jobs: Annotated[int, typer.Option(min=0, help="Never more jobs than this.")],
    min_jobs: Annotated[int, typer.Option(min=0, help="Kept even without tasks.")] = 0,
    tasks_per_job: Annotated[
        int, typer.Option(min=1, help="Unfinished tasks that are worth one job.")
    ] = 64,
    time: Annotated[str, typer.Option(help="Walltime of a job, such as 4h.")] = "1h",
    drain: Annotated[
        str, typer.Option(help="Agents take no more tasks so long before their walltime ends.")
    ] = "5m",
    idle: Annotated[
        str, typer.Option(help="Agents leave after so long without work, if too many.")
    ] = "2m",
    suite: Annotated[
        list[str] | None, typer.Option(help="Count only this suite; may be repeated.")
    ] = None,
    groups: Annotated[str | None, typer.Option(help="Groups to serve: a,b.")] = None,
    tags: Annotated[str, typer.Option(help="Tags of the agents: a,b.")] = "",
    partition: Annotated[str | None, typer.Option(help="Slurm partition.")] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(help="A flag for sbatch in one word, as --sbatch=--mem=8G; repeatable."),
    ] = None,
    setup: Annotated[
        list[str] | None, typer.Option(help="A shell line before the agent; repeatable.")
    ] = None,
    name: Annotated[str, typer.Option(help="Of this allocation.")] = "default",
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Lock, token and logs; the nodes have to see it too."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="What agents register with, instead of your own login.")
    ] = None,
    agent_dir: Annotated[
        str | None, typer.Option(help="On the nodes, instead of $TMPDIR or /tmp.")
    ] = None,
    agent_command: Annotated[str, typer.Option(help="On the nodes.")] = shlex.join(AGENT),
    poll: Annotated[str, typer.Option(help="Time between two looks.")] = "15s",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show, do nothing, end.")] = False,
) -> None:
    """Keep as many node agents alive as Slurm jobs as the backlog needs, until stopped.

    SIGTERM and Ctrl-C stop it; the jobs stay, and the next start adopts them. With -o json every
    event is one JSON object on a line of its own.
    """
    session = session_of(ctx)
    place = Place(_directory(session, directory, name))
    if token_file is not None:
        check_token_file(token_file)
    limits = Limits(
        max_jobs=max_jobs,
        min_jobs=min_jobs,
        tasks_per_job=tasks_per_job,
        drain_s=parse_duration(drain),
        idle_s=parse_duration(idle),
    )
    plan = JobPlan(
        name=name,
        coordinator=session.settings.coordinator.rstrip("/"),
        token_file=(token_file or place.token_file).absolute(),
        log_dir=place.logs,
        agent_command=tuple(shlex.split(agent_command)),
        scope=Scope(
            groups=_names(groups) if groups else (session.group,),
            tags=_names(tags),
            suites=tuple(session.suite(one) for one in suite or ()),
        ),
        time_s=parse_duration(time),
        drain_s=limits.drain_s,
        partition=partition,
        agent_dir=agent_dir,
        setup=tuple(setup or ()),
        extra=tuple(sbatch or ()),
    )
    poll_s = _poll(poll)
    allocator = Allocator(
        client=session.client,
        slurm=Slurm(plan.job_name, environment()),
        plan=plan,
        place=place,
        allocation=Allocation(limits),
        tell=lambda *event: _tell(session, *event),
    )
    if dry_run:
        _show(session, allocator, plan)
    else:
        _keep(allocator, place, poll_s, None if token_file else _own_token(session))


def _keep(allocator: Allocator, place: Place, poll_s: float, token: str | None) -> None:
    """`token` is for the agents, unless they have a file of their own."""
    with place.held():
        if token is not None:
            place.write_token(token)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: allocator.stopping.set())
        allocator.run(poll_s)


def _show(session: Session, allocator: Allocator, plan: JobPlan) -> None:
    """One look, and what would follow from it."""
    actions = allocator.decide()
    submits = sum(isinstance(action, Submit) for action in actions)
    command = Slurm(plan.job_name, {}).submit_command(plan.flags(), "TOKEN")
    others = [
        {"action": type(action).__name__.lower(), "job": action.job}
        for action in actions
        if not isinstance(action, Submit)
    ]
    members = {"submit": submits, "others": others, "command": command, "script": plan.script()}
    if session.printer.is_table:
        say(f"would submit {submits} jobs" + "".join(f", {o['action']} {o['job']}" for o in others))
        say(clean(shlex.join(command)))
        say(clean(plan.script(), keep="\n"))
    else:
        _tell(session, "plan", f"would submit {submits} jobs", members)


def _tell(session: Session, event: str, text: str, members: dict[str, object]) -> None:
    if session.printer.output == "json":
        say(json_text({"event": event, "text": text, **members}, indent=None))
    elif session.printer.is_table or event == "submitted":
        is_quiet = session.printer.output == "quiet"
        say(clean(members["job"] if is_quiet else text))


def _directory(session: Session, given: Path | None, name: str) -> Path:
    return (given or session.home.folder / "allocations" / name).expanduser().absolute()


def _poll(text: str) -> int:
    seconds = parse_duration(text)
    if not 1 <= seconds <= 120:
        # Slurm forgets ended jobs after 5 minutes by default, and with them why they ended.
        raise ConfigError("poll: from 1s to 2m")
    return seconds


def _own_token(session: Session) -> str:
    settings = session.settings
    token = session.home.token(settings.coordinator, settings.user)
    if token is None:
        raise NotLoggedIn(f"not logged in at {settings.coordinator}: run `mitosis login` first")
    return token


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
