"""`mitosis admin`: accounts and quotas, for administrators of the installation."""

import sys
from typing import Annotated

import typer

from mitosis_client.cli.login import read_password
from mitosis_client.cli.session import session_of

app = typer.Typer(help="For administrators.", no_args_is_help=True)

StdinOption = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input.")
]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="admin")


@app.command("create-user")
def create_user(
    ctx: typer.Context,
    name: str,
    password_stdin: StdinOption = False,
    admin: Annotated[bool, typer.Option("--admin", help="Another administrator.")] = False,
) -> None:
    """Make a user with a group of the same name."""
    session = session_of(ctx)
    password = read_password(f"Password of {name}: ", from_stdin=password_stdin)
    session.client.accounts.create_user(name, password, admin=admin)
    session.printer.done(f"User {name} is there.", {"username": name, "admin": admin}, id_=name)


@app.command("set-password")
def set_password(ctx: typer.Context, name: str, password_stdin: StdinOption = False) -> None:
    """Set a user's password; all of the user's sessions end."""
    session = session_of(ctx)
    password = read_password(f"New password of {name}: ", from_stdin=password_stdin)
    session.client.accounts.set_password(name, password)
    session.printer.done(f"The password of {name} is set.", id_=name)


@app.command("lock-user")
def lock_user(ctx: typer.Context, name: str) -> None:
    """The user can do nothing until unlocked."""
    _state(ctx, name, "Locked")


@app.command("unlock-user")
def unlock_user(ctx: typer.Context, name: str) -> None:
    """The user is active again."""
    _state(ctx, name, "Active")


@app.command("delete-user")
def delete_user(ctx: typer.Context, name: str) -> None:
    """Mark a user deleted; the name stays taken."""
    session = session_of(ctx)
    found = session.client.accounts.delete_user(name)
    session.printer.done(f"{name}: {found.state}", found, id_=name)


@app.command("group-quota")
def group_quota(ctx: typer.Context, user: str, quota: str) -> None:
    """How many groups a user may make: n, +n, -n."""
    session = session_of(ctx)
    found = session.client.accounts.group_quota(user, quota).group_quota
    session.printer.done(f"{user}: {found} groups", {"group_quota": found}, id_=user)


@app.command("storage-quota")
def storage_quota(ctx: typer.Context, group: str, quota: str) -> None:
    """How much a group may store: 10GB, +1GiB."""
    session = session_of(ctx)
    found = session.client.accounts.storage_quota(group, quota).storage_quota
    session.printer.done(f"{group}: {found} bytes", {"storage_quota": found}, id_=group)


@app.command("shutdown")
def shutdown(ctx: typer.Context) -> None:
    """Stop a coordinator process. The secret is what `manage.py shutdown_secret` prints there."""
    session = session_of(ctx)
    secret = read_password("Secret: ", from_stdin=not sys.stdin.isatty())
    session.client.accounts.shutdown_coordinator(secret)
    session.printer.done("The coordinator stops.")


def _state(ctx: typer.Context, name: str, state: str) -> None:
    session = session_of(ctx)
    found = session.client.accounts.set_user_state(name, state)
    session.printer.done(f"{name}: {found.state}", found, id_=name)
