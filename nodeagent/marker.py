"""Names in the environment of everything an agent starts: its mark, and the suite's directory.

By the mark the agent's next life finds what it left (startup). Its value names the data directory
too: agents of two users may have the same instance name, and one may run inside a task of another.
Set for hooks by hooks.context, for workers by the agent's shell.
"""

from pathlib import Path
from typing import Final

MARKER: Final = "MITOSIS_AGENT_INSTANCE"
SUITE_DIR: Final = "MITOSIS_SUITE_DIR"  # where hooks ran and left what tasks may read
# Reserved names that a managed worker was given and hands on to its commands.
HANDED_ON: Final = (MARKER, SUITE_DIR)


def marker_value(instance: str, data_dir: Path) -> str:
    """The same in every life of one agent, and different for every other agent of the host."""
    return f"{instance}@{data_dir.resolve()}"


def marker_entry(value: str) -> bytes:
    """As it stands in /proc/<pid>/environ."""
    return f"{MARKER}={value}".encode(errors="surrogateescape")
