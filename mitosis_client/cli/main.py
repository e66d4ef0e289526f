"""Entry point of `mitosis`: collects the command groups and turns known errors into one line.

Options that every command knows (`-o`, `--coordinator`, `--context`, `--user`, `--group`) may
stand anywhere before `--`; they are moved to the front, where the root reads them.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from mitosis_client.cli.exit_codes import FAILURE, INTERRUPTED, USAGE, code_of
from mitosis_client.cli.output import fail, fail_in
from mitosis_client.cli.session import Session
from mitosis_client.errors import MitosisError
from mitosis_client.settings import environment, find_home, read_settings
from mitosis_protocol.errors import InvalidValue
from mitosis_stack.errors import StackError

# Flag and setting; all of them take a value.
EVERYWHERE: Final = {
    "-o": "output",
    "--output": "output",
    "--coordinator": "coordinator",
    "--context": "context",
    "--user": "user",
    "--group": "group",
}

# Which module holds a command. Only that one is imported for it: all of them take three times as
# long as the rest of a short command. In the order of the help page.
PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "stack": ("up", "down", "status"),
    "login": ("login", "logout", "whoami", "contexts"),
    "run": ("run",),
    "suites": ("suites",),
    "tasks": ("tasks", "artifacts", "explain"),
    "groups": ("groups", "users"),
    "attachments": ("attachments",),
    "managers": ("managers", "workers"),
    "admin": ("admin",),
    "allocate": ("allocate",),
    "top": ("top",),
    "doctor": ("doctor",),
}


def build(words: Sequence[str]) -> typer.Typer:
    """The program, with the command these words name; with all of them if they name none."""
    app = typer.Typer(
        name="mitosis",
        help="Runs campaigns of command tasks on a fleet of machines.",
        epilog="Options of this level may stand behind a command too. Exit statuses: docs/cli.md.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(root)
    command = command_of(words)
    named = [part for part, commands in PARTS.items() if command in commands]
    for part in named or PARTS:
        import_module(f"mitosis_client.cli.{part}").register(app)
    return app


def command_of(words: Sequence[str]) -> str | None:
    """The first word that is no option; None if an option without a value comes before it."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        if words[place] in EVERYWHERE:
            place += 1
        elif words[place].partition("=")[0] not in EVERYWHERE:
            return None
        place += 1
    return words[place] if place < len(words) else None


def root(
    ctx: typer.Context,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="table, json or quiet (only ids).")
    ] = None,
    coordinator: Annotated[str | None, typer.Option(metavar="URL", help="Its address.")] = None,
    context: Annotated[str | None, typer.Option(help="A coordinator by its name.")] = None,
    user: Annotated[str | None, typer.Option(help="Whose token is used.")] = None,
    group: Annotated[str | None, typer.Option(help="Instead of the user's own group.")] = None,
) -> None:
    """Reads the settings once, for whatever command follows."""
    env = environment()
    home = find_home(env)
    flags = {
        "output": output,
        "coordinator": coordinator,
        "context": context,
        "user": user,
        "group": group,
    }
    ctx.obj = Session(read_settings(home, env, Path.cwd(), flags), home, context)
    ctx.call_on_close(ctx.obj.close)


def main() -> None:
    words = hoist(sys.argv[1:])
    output = _asked_output(words)
    # The shell asks for completions with no words but those it shows here.
    typed = environment().get("COMP_WORDS", "").split()[1:-1]
    try:
        app = build(words or typed)
        sys.exit(app(words, prog_name="mitosis", standalone_mode=False) or 0)
    except typer.TyperException as error:
        message = error.format_message()
        if not message:  # no command given: the help page has been shown instead
            sys.exit(USAGE)
        sys.exit(fail_in(output, f"{message} (see --help)", code=USAGE, kind="usage"))
    except (MitosisError, InvalidValue, msgspec.ValidationError) as error:
        kind = getattr(error, "code", "") or type(error).__name__
        sys.exit(fail_in(output, str(error), code=code_of(error), kind=kind))
    except StackError as error:
        sys.exit(fail(str(error)))
    except BrokenPipeError:
        sys.stderr.close()  # or the interpreter would complain about stdout at its end
        sys.exit(FAILURE)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)


def hoist(words: Sequence[str]) -> list[str]:
    """The same words with the options of every command in front; nothing behind `--` moves."""
    end = words.index("--") if "--" in words else len(words)
    front: list[str] = []
    rest: list[str] = []
    place = 0
    while place < end:
        word = words[place]
        name, has_value, _ = word.partition("=")
        if word in EVERYWHERE and place + 1 < end:
            front += words[place : place + 2]
            place += 2
            continue
        (front if has_value and name in EVERYWHERE else rest).append(word)
        place += 1
    return [*front, *rest, *words[end:]]


def _asked_output(words: Sequence[str]) -> str:
    """For errors that come before, or instead of, the settings."""
    for flag, value in pairwise([*words, ""]):
        if flag in ("-o", "--output"):
            return value
        if flag.startswith("--output="):
            return flag.partition("=")[2]
    return environment().get("MITO_OUTPUT", "table")


if __name__ == "__main__":
    main()
