"""One process of a fleet: how it is started, how it ends, how it is told to hurt itself."""

import contextlib
import dataclasses
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from mitosis_stack.layout import DataDir
from mitosis_stack.process import Child, ChildSpec, spawn
from nodeagent.marker import MARKER


@dataclass
class Part:
    """One process of the deployment, in any of its lives."""

    name: str
    spec: ChildSpec
    prepare: Callable[[], None] = lambda: None
    answers: Callable[[], bool] = lambda: True
    # Whether whatever it started is killed with it; not for agents, which must do that themselves.
    is_group: bool = True
    child: Child | None = None
    armed: str = ""
    deaths_before: int = 0  # how often its faultpoint had killed somebody when it was armed
    is_provoked: bool = False  # has been led to its faultpoint
    lives: int = 0
    is_expected_dead: bool = False

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.pid

    def is_stopped(self) -> bool:
        """SIGSTOP: it is there and answers nobody."""
        try:
            return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED
        except psutil.NoSuchProcess:
            return False

    def has_ended(self) -> bool:
        if self.child is None:
            return True
        try:
            state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return state is not None

    def is_ready(self) -> bool:
        return not self.has_ended() and self.answers()

    def start(self, faults: str = "") -> None:
        """A new life; with `faults` one that is going to hurt itself."""
        self.prepare()
        env = {**self.spec.env, "MITOSIS_FAULTS": faults} if faults else self.spec.env
        self.child = spawn(dataclasses.replace(self.spec, env=env))
        self.armed = faults
        self.is_provoked = False
        self.lives += 1
        self.is_expected_dead = False

    def bury(self) -> int:
        """Its exit status, once it has ended."""
        assert self.child is not None
        if self.is_group:
            self.child.kill()
        return self.child._process.wait()

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def worker_spec(
    data: DataDir, url: str, admin: tuple[str, str], inherited: Mapping[str, str]
) -> ChildSpec:
    home = data.root / "worker"
    home.mkdir(exist_ok=True)
    user, password = admin
    return ChildSpec(
        name="worker",
        argv=(
            *(sys.executable, "-m", "nodeagent", "worker", "--independent", "--retain"),
            *("--coordinator", url, "--user", user),
            *("--polling-interval", "200ms", "--heartbeat-interval", "1s"),
            *("--log-format", "json"),
        ),
        log=data.logs / "worker.log",
        env={
            **inherited,
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "MITO_PASSWORD": password,
            "PYTHONUNBUFFERED": "1",
        },
    )


def flag_of(part: Part, name: str) -> str:
    argv = part.spec.argv
    return argv[argv.index(name) + 1]


def marked_processes(markers: Iterable[str]) -> list[psutil.Process]:
    """Everything that agents with these markers have started; oldest first."""
    wanted = {f"{MARKER}={value}".encode() for value in markers}
    return [process for process in psutil.process_iter() if _has_entry(process.pid, wanted)]


def _has_entry(pid: int, wanted: set[bytes]) -> bool:
    try:
        return not wanted.isdisjoint(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return False
