"""`mitosis login`, `logout`, `whoami` and `contexts`: who speaks to which coordinator."""

import getpass
import sys
from typing import Annotated

import typer

from mitosis_client.cli.session import session_of
from mitosis_client.client import Client
from mitosis_client.errors import ConfigError

contexts_app = typer.Typer(help="Coordinators by name.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.command()(login)
    app.command()(logout)
    app.command()(whoami)
    app.add_typer(contexts_app, name="contexts")


def login(
    ctx: typer.Context,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    save_as: Annotated[
        str, typer.Option("--save-as", metavar="NAME", help="The name of the context.")
    ] = "default",
) -> None:
    """Log in with --coordinator and --user; the token goes to the keyring or a private file."""
    session = session_of(ctx)
    settings = session.settings
    user = settings.user
    if user is None:
        raise ConfigError("login needs --user NAME")
    password = read_password(f"Password of {user}: ", from_stdin=password_stdin)
    url = settings.coordinator.rstrip("/")
    with Client(url) as client:
        token = client.login(user, password)
    where = session.home.save_token(url, user, token, store=settings.tokens)
    name = session.context or save_as
    contexts = session.home.contexts()
    kept = {"coordinator": url, "user": user}
    if settings.group is not None:
        kept["group"] = settings.group
    contexts.contexts[name] = kept
    contexts.current = name
    session.home.save_contexts(contexts)
    session.printer.done(
        f"Logged in at {url} as {user} (context {name}, token in the {where}).",
        {"context": name, **kept, "token_store": where},
        id_=name,
    )


def logout(ctx: typer.Context) -> None:
    """Forget the token on this machine."""
    session = session_of(ctx)
    settings = session.settings
    if settings.user is None:
        raise ConfigError("logout needs --user NAME, or a context with one")
    session.home.forget_token(settings.coordinator, settings.user)
    session.printer.done(f"Logged out of {settings.coordinator}.")


def whoami(ctx: typer.Context) -> None:
    """Who the coordinator takes this user for."""
    session = session_of(ctx)
    name = session.client.accounts.whoami()
    found = {"user": name, "coordinator": session.settings.coordinator, "group": session.group}
    session.printer.one(found, id_=name)


def read_password(prompt: str, *, from_stdin: bool) -> str:
    """Never from the command line: other users of the machine can read that."""
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = getpass.getpass(prompt)
    else:
        raise ConfigError("no terminal to ask for the password on; use --password-stdin")
    if not password:
        raise ConfigError("the password is empty")
    return password


@contexts_app.command("list")
def list_contexts(ctx: typer.Context) -> None:
    """All contexts; the current one is marked."""
    session = session_of(ctx)
    kept = session.home.contexts()
    rows = [
        {"name": name, "current": name == kept.current, **members}
        for name, members in sorted(kept.contexts.items())
    ]
    session.printer.rows(
        rows,
        [
            ("name", lambda row: row["name"]),
            ("current", lambda row: "*" if row["current"] else ""),
            ("coordinator", lambda row: row.get("coordinator")),
            ("user", lambda row: row.get("user")),
            ("group", lambda row: row.get("group")),
        ],
        id_of=lambda row: str(row["name"]),
    )


@contexts_app.command()
def use(ctx: typer.Context, name: str) -> None:
    """Make a context the current one."""
    session = session_of(ctx)
    kept = session.home.contexts()
    if name not in kept.contexts:
        raise ConfigError(f"no context is called {name!r}")
    kept.current = name
    session.home.save_contexts(kept)
    session.printer.done(f"Now using {name}.", id_=name)


@contexts_app.command()
def remove(ctx: typer.Context, name: str) -> None:
    """Forget a context and its token."""
    session = session_of(ctx)
    kept = session.home.contexts()
    gone = kept.contexts.pop(name, None)
    if gone is None:
        raise ConfigError(f"no context is called {name!r}")
    if kept.current == name:
        kept.current = None
    session.home.save_contexts(kept)
    if "user" in gone:
        session.home.forget_token(gone["coordinator"], gone["user"])
    session.printer.done(f"Forgot {name}.", id_=name)
