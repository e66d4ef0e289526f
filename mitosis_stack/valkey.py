"""Valkey as a child: a Unix socket, no TCP, every write in the append-only file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mitosis_stack.probes import valkey_answers
from mitosis_stack.process import ChildSpec


@dataclass(frozen=True)
class Valkey:
    """One server for hints, caches and Celery's queue; nothing in it is the only copy."""

    program: Path
    directory: Path
    socket: Path
    log: Path
    inherited: Mapping[str, str]
    name: str = "valkey"
    start_timeout_s: float = 60.0

    @property
    def url(self) -> str:
        return f"unix://{self.socket}?db=0"

    def prepare(self) -> None:
        self.directory.mkdir(exist_ok=True, mode=0o700)

    def spec(self) -> ChildSpec:
        return ChildSpec(
            name=self.name,
            argv=(
                str(self.program),
                "--port", "0",
                "--unixsocket", str(self.socket),
                "--unixsocketperm", "700",
                "--dir", ".",
                "--appendonly", "yes",
                "--save", "",
                "--daemonize", "no",
            ),
            log=self.log,
            env=self.inherited,
            cwd=self.directory,
        )  # fmt: skip

    def is_ready(self) -> bool:
        return valkey_answers(self.socket)
