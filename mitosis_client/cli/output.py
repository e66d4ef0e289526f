"""How the command line speaks: tables, stable JSON or bare ids on stdout, problems on stderr.

Everything that came from outside passes `clean` (or JSON escapes) on its way to a terminal.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

T = TypeVar("T")
Column: TypeAlias = tuple[str, Callable[[T], object]]

# C0, DEL and C1 steer terminals; the rest reorders or hides what is shown.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)


def clean(text: object, *, keep: str = "") -> str:
    """A text that shows what it holds and does nothing else; `keep` names harmless controls."""
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else _shown(found[0]), str(text))


def _shown(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def say(line: str) -> None:
    print(line, flush=True)


def warn(message: str) -> None:
    """Something to know that ends nothing."""
    print(f"mitosis: {clean(' '.join(message.split()))}", file=sys.stderr, flush=True)


def fail(message: str) -> int:
    """Print a problem as one message without a traceback; returns the exit status."""
    print(f"mitosis: {clean(message, keep=chr(10))}", file=sys.stderr, flush=True)
    return 1


def fail_in(output: str, message: str, *, code: int, kind: str = "") -> int:
    """As fail, in the form the caller asked for; one line in any case."""
    if output == "json":
        problem = {"error": {"message": message, "code": kind, "exit_status": code}}
        print(json_text(problem, indent=None), file=sys.stderr, flush=True)
    else:
        fail(" ".join(message.split()))
    return code


def json_text(value: object, *, indent: int | None = 2) -> str:
    """ASCII only: what is not is escaped, so no control character survives."""
    return json.dumps(value, indent=indent, ensure_ascii=True).replace("\x7f", "\\u007f")


class Printer:
    """Shows results as the user asked: `table`, `json` or `quiet`.

    rich is imported for the first table only: scripts ask for JSON or ids and need not wait for it.
    """

    def __init__(self, output: str) -> None:
        self.output = output
        self.is_one_line = False  # JSON, when values follow each other
        self._frame: list[RenderableType] | None = None

    @cached_property
    def console(self) -> "Console":
        from mitosis_client.cli.tables import new_console  # noqa: PLC0415 - see the class

        return new_console()

    @property
    def is_table(self) -> bool:
        return self.output == "table"

    def rows(
        self, found: Iterable[T], columns: Sequence[Column[T]], *, id_of: Callable[[T], str]
    ) -> None:
        """A list: a table, one JSON array, or an id per line."""
        items = list(found)
        if self.output == "json":
            self._json([_plain(item) for item in items])
        elif self.output == "quiet":
            for item in items:
                say(clean(id_of(item)))
        else:
            from mitosis_client.cli.tables import table_of  # noqa: PLC0415 - see the class

            self._show(table_of(items, columns))

    def one(self, found: object, *, id_: str = "", title: str = "") -> None:
        """One thing: its members, one JSON object, or its id."""
        if self.output == "json":
            self._json(_plain(found))
        elif self.output == "quiet":
            if id_:
                say(clean(id_))
        else:
            from mitosis_client.cli.tables import members_of  # noqa: PLC0415 - see the class

            self._show(members_of(_plain(found), title=title))

    def lines(self, texts: Sequence[str]) -> None:
        """Sentences for people; only where `is_table`."""
        for text in texts:
            if self._frame is None:
                say(clean(text))
            else:
                self._frame.append(clean(text))

    def done(
        self, sentence: str, value: object = None, *, id_: str = "", ids: Sequence[str] = ()
    ) -> None:
        """The end of a command that changed something: one thing, or several."""
        if self.output == "json":
            self._json(_plain(value) if value is not None else {"ok": True})
        elif self.output == "quiet":
            for one in ids or ([id_] if id_ else []):
                say(clean(one))
        else:
            say(clean(sentence))

    @contextmanager
    def collecting(self) -> "Iterator[list[RenderableType]]":
        """Tables and lines of the block go into the list instead of to the terminal."""
        self._frame = []
        try:
            yield self._frame
        finally:
            self._frame = None

    def _show(self, table: "RenderableType") -> None:
        if self._frame is None:
            self.console.print(table)
        else:
            self._frame.append(table)

    def _json(self, value: object) -> None:
        say(json_text(value, indent=None if self.is_one_line else 2))


def counted(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def short(uuid: str | None) -> str:
    """The first eight digits: enough to tell, and accepted wherever an id is."""
    return "" if uuid is None else uuid[:8]


def _plain(value: object) -> Any:
    as_dict = getattr(value, "as_dict", None)
    return as_dict() if callable(as_dict) else value
