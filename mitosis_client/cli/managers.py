"""`mitosis managers` and `mitosis workers`: the hosts, and workers without a manager."""

from typing import Annotated, Any, Final

import typer

from mitosis_client.cli.arguments import ManagerArgument, WatchOption, WorkerArgument
from mitosis_client.cli.groups import roles_of
from mitosis_client.cli.output import Column, short
from mitosis_client.cli.session import session_of
from mitosis_client.cli.watching import present
from mitosis_client.fleet_models import Manager

app = typer.Typer(help="Node managers, one per host.", no_args_is_help=True)
workers_app = typer.Typer(help="Workers without a manager.", no_args_is_help=True)

ReasonOption = Annotated[str, typer.Option(help="Kept, and shown to others.")]

COLUMNS: Final[list[Column[Manager]]] = [
    ("id", lambda one: short(one.uuid)),
    ("state", lambda one: one.state),
    ("wanted", lambda one: one.desired_state),
    ("link", lambda one: one.connection),
    ("suite", lambda one: short(one.assigned_suite_uuid)),
    ("tags", lambda one: one.tags),
    ("last heard", lambda one: (one.last_heartbeat or "")[:19]),
]
WORKER_COLUMNS: Final[list[Column[dict[str, Any]]]] = [
    ("id", lambda one: short(one["worker_id"])),
    ("kind", lambda one: one.get("kind")),
    ("state", lambda one: one["state"]),
    ("task", lambda one: short(one.get("assigned_task_id"))),
    ("tags", lambda one: one.get("tags")),
    ("last heard", lambda one: str(one.get("last_heartbeat") or "")[:19]),
]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="managers")
    parent.add_typer(workers_app, name="workers")


@app.command("list")
def list_(
    ctx: typer.Context,
    state: Annotated[list[str] | None, typer.Option(help="Only these states.")] = None,
    watch: WatchOption = False,
) -> None:
    """Hosts your groups may use."""
    session = session_of(ctx)

    def look() -> None:
        found = session.client.fleet.managers(group_name=session.settings.group, states=state)
        session.printer.rows(found, COLUMNS, id_of=lambda one: one.uuid)

    present(session.printer, look, watch=watch)


@app.command()
def show(ctx: typer.Context, manager: ManagerArgument, watch: WatchOption = False) -> None:
    """Everything about one host."""
    session = session_of(ctx)
    uuid = session.manager(manager)

    def look() -> None:
        session.printer.one(session.client.fleet.manager(uuid), id_=uuid)

    present(session.printer, look, watch=watch)


@app.command()
def metrics(
    ctx: typer.Context,
    manager: ManagerArgument,
    window: Annotated[str, typer.Option(help="From 1m to 90d.")] = "1h",
) -> None:
    """What a host measured."""
    session = session_of(ctx)
    found = session.client.fleet.metrics(session.manager(manager), window=window)
    shown = {name: found[name] for name in ("at", "task_throughput", "worker_health", "latest")}
    session.printer.one(found if session.printer.output == "json" else shown, id_=manager)


@app.command()
def drain(ctx: typer.Context, manager: ManagerArgument, reason: ReasonOption = "") -> None:
    """No new tasks; what runs may end."""
    uuid = session_of(ctx).manager(manager)
    _wished(ctx, uuid, session_of(ctx).client.fleet.drain(uuid, reason=reason).desired_state)


@app.command()
def undrain(ctx: typer.Context, manager: ManagerArgument) -> None:
    """Take tasks again."""
    uuid = session_of(ctx).manager(manager)
    _wished(ctx, uuid, session_of(ctx).client.fleet.undrain(uuid).desired_state)


@app.command()
def quarantine(ctx: typer.Context, manager: ManagerArgument, reason: ReasonOption = "") -> None:
    """Keep it from tasks until it is released."""
    uuid = session_of(ctx).manager(manager)
    _wished(ctx, uuid, session_of(ctx).client.fleet.quarantine(uuid, reason=reason).desired_state)


@app.command()
def release(ctx: typer.Context, manager: ManagerArgument) -> None:
    """End a quarantine."""
    uuid = session_of(ctx).manager(manager)
    _wished(ctx, uuid, session_of(ctx).client.fleet.release(uuid).desired_state)


@app.command()
def shutdown(
    ctx: typer.Context,
    manager: ManagerArgument,
    force: Annotated[bool, typer.Option("--force", help="Do not wait for what runs.")] = False,
) -> None:
    """Let the agent end."""
    uuid = session_of(ctx).manager(manager)
    _wished(ctx, uuid, session_of(ctx).client.fleet.shutdown(uuid, force=force).state)


@app.command()
def grant(
    ctx: typer.Context,
    manager: ManagerArgument,
    groups: Annotated[list[str], typer.Argument(metavar="GROUP=ROLE...")],
) -> None:
    """Give groups a role on a host; it counts once they accept."""
    session = session_of(ctx)
    uuid = session.manager(manager)
    found = session.client.fleet.grant(uuid, roles_of(groups)).consents
    told = ", ".join(f"{name}: {state}" for name, state in found.items())
    session.printer.done(told, {"consents": found}, id_=uuid)


@app.command()
def withdraw(ctx: typer.Context, manager: ManagerArgument, groups: list[str]) -> None:
    """Take the groups' roles on a host away."""
    session = session_of(ctx)
    uuid = session.manager(manager)
    session.client.fleet.withdraw(uuid, groups)
    session.printer.done(f"{', '.join(groups)} may not use {uuid} any more.", id_=uuid)


@app.command()
def consent(
    ctx: typer.Context,
    manager: Annotated[str, typer.Argument(help="The whole uuid: it is not in your list yet.")],
    refuse: Annotated[bool, typer.Option("--refuse")] = False,
) -> None:
    """Answer for your --group to a host that wants to serve it."""
    session = session_of(ctx)
    found = session.client.fleet.consent(manager, session.group, accept=not refuse)
    session.printer.done(f"{session.group}: {found.consent}", {"consent": found.consent})


@workers_app.command("list")
def list_workers(ctx: typer.Context, watch: WatchOption = False) -> None:
    """Independent and direct workers of the group."""
    session = session_of(ctx)

    def look() -> None:
        found = session.client.fleet.workers(group_name=session.settings.group)["workers"]
        session.printer.rows(found, WORKER_COLUMNS, id_of=lambda one: str(one["worker_id"]))

    present(session.printer, look, watch=watch)


@workers_app.command("show")
def show_worker(ctx: typer.Context, worker: WorkerArgument, watch: WatchOption = False) -> None:
    """Everything about one worker."""
    session = session_of(ctx)
    uuid = session.worker(worker)

    def look() -> None:
        found = session.client.fleet.worker(uuid)
        session.printer.one({**found.info.as_dict(), "groups": found.groups}, id_=uuid)

    present(session.printer, look, watch=watch)


@workers_app.command("shutdown")
def shutdown_worker(
    ctx: typer.Context,
    worker: WorkerArgument,
    force: Annotated[bool, typer.Option("--force", help="Its task goes back at once.")] = False,
) -> None:
    """Let a worker end."""
    session = session_of(ctx)
    uuid = session.worker(worker)
    session.client.fleet.shutdown_worker(uuid, force=force)
    session.printer.done(f"{uuid} leaves.", id_=uuid)


def _wished(ctx: typer.Context, uuid: str, state: str) -> None:
    session_of(ctx).printer.done(f"{uuid}: {state}", {"uuid": uuid, "state": state}, id_=uuid)
