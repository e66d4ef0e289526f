"""Node agents as parts of the embedded stack: `mitosis up --agents N`.

Each has a directory of its own below the data directory and registers as the admin user, whose
group it serves. They are started last and so are the first to stop.
"""

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mitosis_stack.layout import DataDir
from mitosis_stack.process import ChildSpec

# Tasks in hand may finish for so long when the stack is stopped; then they are given back.
GRACE = "5s"
STOP_GRACE_S = 20.0


@dataclass(frozen=True)
class NodeAgent:
    """One agent; `admin` is the name and password it registers with."""

    number: int
    data: DataDir
    url: str
    admin: tuple[str, str]
    inherited: Mapping[str, str]
    start_timeout_s: float = 60.0

    @property
    def name(self) -> str:
        return f"agent-{self.number}"

    @property
    def directory(self) -> Path:
        return self.data.agents / str(self.number)

    def prepare(self) -> None:
        self.data.agents.mkdir(exist_ok=True, mode=0o711)
        self.directory.mkdir(exist_ok=True, mode=0o700)
        if os.geteuid() == 0:
            # Commands run as users of their own and pass through to their work directories.
            for path in (self.data.root, self.data.agents):
                path.chmod(0o711)

    def spec(self) -> ChildSpec:
        user, password = self.admin
        return ChildSpec(
            name=self.name,
            argv=(
                sys.executable, "-m", "nodeagent", "run",
                "--coordinator", self.url,
                "--instance", self._instance,
                "--data-dir", str(self.directory),
                "--lock-dir", str(self.data.agents / "locks"),
                "--grace", GRACE,
                "--log-format", "json",
            ),
            log=self.data.logs / f"{self.name}.log",
            # Not among the arguments, which every user of the machine can read.
            env={
                **self.inherited,
                "MITO_AGENT_USER": user,
                "MITO_AGENT_PASSWORD": password,
                "PYTHONUNBUFFERED": "1",
            },
            stop_grace_s=STOP_GRACE_S,
        )  # fmt: skip

    def is_ready(self) -> bool:
        """It has registered, now or at an earlier start; connecting is its own business."""
        return (self.directory / "identity.json").exists()

    @property
    def _instance(self) -> str:
        """Stacks on two data directories of one machine must not share cgroups."""
        stack = hashlib.sha256(str(self.data.root).encode()).hexdigest()[:8]
        return f"up-{stack}-{self.number}"


def build_agents(
    data: DataDir, count: int, url: str, admin: tuple[str, str], inherited: Mapping[str, str]
) -> tuple[NodeAgent, ...]:
    return tuple(
        NodeAgent(number=number, data=data, url=url, admin=admin, inherited=inherited)
        for number in range(1, count + 1)
    )
