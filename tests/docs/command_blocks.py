"""Finds the command blocks of README and docs, and what is to be done with each.

A block is a fence of a shell language. Without a marker it is executed against the stack of the
documentation test. A marker stands right above it as a comment:

    not run: <why it cannot be>
    run by: tests/<file>.py[::<test>]     a test of its own executes the same
    run: last                             executed after all others (it stops the stack)
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHELLS = ("sh", "bash", "shell", "console")
FENCE = re.compile(
    r"(?:<!--[ \t]*(?P<said>not run|run by|run):[ \t]*(?P<text>[^>]*?)[ \t]*-->[ \t]*\n\n?)?"
    r"^(?P<indent>[ \t]*)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
# A fence without a language that begins like a command is one that forgot its language.
COMMAND = re.compile(
    r"^(\$ |\.venv/|(make|mitosis|nodeagent|python3?|pip|curl|docker|kubectl|systemctl|psql) )",
    re.MULTILINE,
)


class Fate(Enum):
    """What happens to a block."""

    EXECUTED = "executed"
    EXECUTED_LAST = "run: last"
    TESTED = "run by"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Block:
    """Some lines of shell on a page."""

    page: Path
    line: int
    text: str
    fate: Fate
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page people read: at the root, below docs and beside the deployment files."""
    return sorted(
        [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docker").rglob("*.md")]
    )


def fences(page: Path) -> Iterator[re.Match[str]]:
    yield from FENCE.finditer(page.read_text())


def blocks(page: Path) -> list[Block]:
    """The command blocks of a page, in order."""
    found = []
    for match in fences(page):
        if match["language"] in SHELLS:
            line = page.read_text()[: match.start("body")].count("\n") + 1
            fate = _fate(match["said"], match["text"])
            found.append(Block(page, line, _dedented(match), fate, match["text"] or ""))
    return found


def _fate(said: str | None, text: str | None) -> Fate:
    if said is None:
        return Fate.EXECUTED
    if said == "run":
        assert text == "last", f"unknown marker: run: {text}"
        return Fate.EXECUTED_LAST
    return Fate(said)


def _dedented(match: re.Match[str]) -> str:
    indent = match["indent"]
    lines = match["body"].splitlines()
    return "\n".join(line.removeprefix(indent) for line in lines) + "\n"
