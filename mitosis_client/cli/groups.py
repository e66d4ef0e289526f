"""`mitosis groups` and `mitosis users`: who may do what together."""

from typing import Annotated, Final

import typer

from mitosis_client.cli.login import read_password
from mitosis_client.cli.output import counted
from mitosis_client.cli.run import pairs
from mitosis_client.cli.session import session_of
from mitosis_client.errors import ConfigError

app = typer.Typer(help="Groups: who shares tasks, hosts and files.", no_args_is_help=True)
users_app = typer.Typer(help="Your own account.", no_args_is_help=True)

ROLES: Final = ("Read", "Write", "Admin")


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="groups")
    parent.add_typer(users_app, name="users")


@app.command("list")
@users_app.command("groups")
def list_(ctx: typer.Context) -> None:
    """Your groups and your role in each."""
    session = session_of(ctx)
    roles = session.client.accounts.roles().groups
    rows = [{"group": name, "role": role} for name, role in sorted(roles.items())]
    session.printer.rows(
        rows,
        [("group", lambda row: row["group"]), ("role", lambda row: row["role"])],
        id_of=lambda row: row["group"],
    )


@app.command()
def show(ctx: typer.Context, name: str) -> None:
    """One group: storage, tasks, and for its admins the members."""
    session = session_of(ctx)
    session.printer.one(session.client.accounts.group(name), id_=name)


@app.command()
def create(ctx: typer.Context, name: str) -> None:
    """Make a group; you become its admin."""
    session = session_of(ctx)
    session.client.accounts.create_group(name)
    session.printer.done(f"Group {name} is there.", {"group_name": name}, id_=name)


@app.command("add")
def add_users(
    ctx: typer.Context,
    name: str,
    members: Annotated[list[str], typer.Argument(metavar="USER=ROLE...")],
) -> None:
    """Give users a role in a group: ann=write bob=admin."""
    session = session_of(ctx)
    relations = roles_of(members)
    session.client.accounts.set_members(name, relations)
    session.printer.done(
        f"{counted(len(relations), 'member')} set.", {"relations": relations}, id_=name
    )


@app.command("remove")
def remove_users(ctx: typer.Context, name: str, users: list[str]) -> None:
    """Take users out of a group."""
    session = session_of(ctx)
    session.client.accounts.remove_members(name, users)
    session.printer.done(f"{counted(len(users), 'member')} removed.", id_=name)


@users_app.command()
def password(
    ctx: typer.Context,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Two lines: the old one, the new one.")
    ] = False,
) -> None:
    """Change your password; your other sessions end."""
    session = session_of(ctx)
    user = session.client.accounts.whoami()
    old = read_password("Old password: ", from_stdin=password_stdin)
    new = read_password("New password: ", from_stdin=password_stdin)
    token = session.client.accounts.change_password(user, old, new).token
    session.home.save_token(
        session.settings.coordinator, user, token, store=session.settings.tokens
    )
    session.printer.done("The password is changed.")


def roles_of(texts: list[str]) -> dict[str, str]:
    """`name=role` words, with the role in any case."""
    found = {}
    for name, role in pairs(texts, "a member").items():
        if role.capitalize() not in ROLES:
            raise ConfigError(f"{role!r} is no role: {', '.join(ROLES)}")
        found[name] = role.capitalize()
    return found
