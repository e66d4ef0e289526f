"""The state file: what runs on a data directory, for `status`, `down` and the next start.

It is a description, never the truth: the lock says whether a stack runs.
"""

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mitosis_stack.layout import read_json, write_private


@dataclass
class ChildState:
    name: str
    pid: int
    state: str
    started_at: float
    restarts: int
    log: str


@dataclass
class StackState:
    """Written by the supervisor after every change."""

    phase: str = "starting"
    pid: int = 0
    start_mark: str = ""
    url: str = ""
    ports: dict[str, int] = field(default_factory=dict)
    children: dict[str, ChildState] = field(default_factory=dict)
    updated_at: float = 0.0

    def write(self, path: Path) -> None:
        self.updated_at = time.time()  # noqa: TID251 - shown to people, compared with nothing
        write_private(path, json.dumps(asdict(self), indent=2))


def read_state(path: Path) -> StackState | None:
    """The last description, or None when there is none or a crash of the disk damaged it."""
    raw = read_json(path)
    if raw is None:
        return None
    try:
        children = {name: ChildState(**child) for name, child in raw.pop("children", {}).items()}
        return StackState(children=children, **raw)
    except TypeError:  # written by another version
        return None
