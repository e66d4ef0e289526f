"""Puts the state diagrams of mitosis_protocol.transitions between their markers in the docs.

`python -m tests.architecture.state_diagrams` rewrites the pages; the test beside it
compares.
"""

import re
from pathlib import Path

from mitosis_protocol.transitions import MANAGER, SUITE, TASK, TASK_ENDS, mermaid

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (DOCS / "architecture.md", DOCS / "concepts.md")
DIAGRAMS = {"task": mermaid(TASK, TASK_ENDS), "suite": mermaid(SUITE), "manager": mermaid(MANAGER)}


def marked_blocks(text: str, name: str) -> list[str]:
    """What stands between the markers of that name, each time they occur."""
    return re.findall(
        rf"<!-- generated:{name} -->\n(.*?)<!-- /generated:{name} -->", text, re.DOTALL
    )


def block(name: str) -> str:
    """What has to stand there."""
    return f"```mermaid\n{DIAGRAMS[name].rstrip()}\n```\n"


def fill(text: str) -> str:
    """The page with every marked block as the tables have it."""
    for name in DIAGRAMS:
        for old in marked_blocks(text, name):
            opening = f"<!-- generated:{name} -->\n"
            text = text.replace(opening + old, opening + block(name))
    return text


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(fill(page.read_text()))
