"""`mitosis attachments`: files of a group, for tasks and hooks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from mitosis_client.cli.output import Column, clean, counted
from mitosis_client.cli.session import Session, session_of
from mitosis_client.cli.tables import new_console
from mitosis_client.errors import ConfigError
from mitosis_client.models import Attachment

app = typer.Typer(help="Files of a group.", no_args_is_help=True)

COLUMNS: Final[list[Column[Attachment]]] = [
    ("key", lambda one: one.key),
    ("bytes", lambda one: one.size),
    ("changed", lambda one: one.updated_at[:19]),
]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="attachments")


@app.command("list")
def list_(
    ctx: typer.Context,
    key: Annotated[str | None, typer.Option(help="Part of the key.")] = None,
) -> None:
    """Files of the group."""
    session = session_of(ctx)
    found = session.client.accounts.attachments(session.group, key=key)
    session.printer.rows(found, COLUMNS, id_of=lambda one: one.key)


@app.command()
def show(ctx: typer.Context, key: str) -> None:
    """What is known of a file."""
    session = session_of(ctx)
    found = session.client.accounts.attachment(session.group, key)
    session.printer.one({**found.as_dict(), "key": key}, id_=key)


@app.command()
def upload(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(help="A file, or a directory with all below it.")],
    key: Annotated[
        str | None, typer.Option(help="Its name there; of a directory: before it.")
    ] = None,
) -> None:
    """Upload a file or a directory."""
    session = session_of(ctx)
    files = list(_files(path, key or path.name))
    total = sum(file.stat().st_size for file, _ in files)
    with _bar(session) as bar:
        task = bar.add_task(clean(path.name), total=total)
        for file, name in files:
            session.client.files.upload_attachment(
                session.group, name, file, lambda size: bar.advance(task, size)
            )
    keys = [name for _, name in files]
    session.printer.done(
        f"{counted(len(keys), 'file')}, {total} bytes", {"keys": keys, "size": total}, ids=keys
    )


@app.command()
def download(
    ctx: typer.Context,
    key: str,
    to: Annotated[Path | None, typer.Option(help="File; else the last part of the key.")] = None,
) -> None:
    """Fetch a file."""
    session = session_of(ctx)
    path = to or Path(key.rsplit("/", 1)[-1])
    with _bar(session) as bar:
        task = bar.add_task(clean(key), total=None)
        size = session.client.files.download_attachment(
            session.group, key, path, lambda part: bar.advance(task, part)
        )
    session.printer.done(f"{path}: {size} bytes", {"path": str(path), "size": size}, id_=str(path))


@app.command()
def delete(ctx: typer.Context, key: str) -> None:
    """Delete a file that has not changed for an hour."""
    session = session_of(ctx)
    session.client.accounts.delete_attachment(session.group, key)
    session.printer.done(f"Deleted {key}.", id_=key)


def _files(path: Path, key: str) -> Iterator[tuple[Path, str]]:
    """Regular files only: a link could lead anywhere on this machine."""
    if path.is_file():
        yield path, key
        return
    if not path.is_dir():
        raise ConfigError(f"{path}: no such file or directory")
    found = sorted(file for file in path.rglob("*") if file.is_file() and not file.is_symlink())
    if not found:
        raise ConfigError(f"{path}: no files below it")
    for file in found:
        yield file, f"{key}/{file.relative_to(path).as_posix()}"


def _bar(session: Session) -> Progress:
    console = new_console(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console,
        disable=not (session.printer.is_table and console.is_terminal),
    )
