"""The commands of `mitosis`, as the program itself has them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import typer

from mitosis_client.cli.main import EVERYWHERE, build


@cache
def all_commands() -> list[str]:
    """`suites list` and all others that do something."""
    return sorted(_below(typer.main.get_command(build([])), ()))


def path_of(words: Sequence[str]) -> str:
    """Which command some words call; empty if none."""
    plain: list[str] = []
    skip = False
    for word in words:
        if skip or word.startswith("-"):
            skip = not skip and word in EVERYWHERE
        else:
            plain.append(word)
    called = {" ".join(plain[:length]) for length in (1, 2)}
    return next((path for path in all_commands() if path in called), "")


def _below(node: Any, path: tuple[str, ...]) -> Iterator[str]:
    children = _children(node)
    if not children:
        yield " ".join(path)
    for name, child in children.items():
        yield from _below(child, (*path, name))


def _children(node: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(node, "commands", {})
    return found
