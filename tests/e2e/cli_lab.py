"""`mitosis` as a user types it, against one cluster with one agent; also in a pseudo-terminal."""

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from mitosis_client import Client
from mitosis_client.cli.main import main
from tests.e2e.agent_lab import BRISK, AgentLab
from tests.e2e.cli_answers import check_answer
from tests.e2e.cli_tree import path_of
from tests.e2e.cluster import Cluster

MITOSIS = (sys.executable, "-m", "mitosis_client.cli.main")


@dataclass(frozen=True)
class Done:
    """How a command ended and what it said."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class Shell:
    """A user with a home of its own and a coordinator to talk to."""

    home: Path
    url: str
    user: str
    password: str
    driven: ClassVar[set[str]] = set()  # commands that did what they are for

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH",)}
        return {
            **kept,
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "PYTHONPATH": str(Path.cwd()),
            "TERM": "xterm-256color",
            "COLUMNS": "200",
            "LANG": "C.UTF-8",
            # Whatever keyring other tests of this process brought along.
            "MITO_TOKENS": "file",
        }

    def run(self, *words: str, stdin: str = "", **env: str) -> "Done":
        """In this process, which spares half a second a command; `process` starts a real one."""
        before = Path.cwd()
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with (
            mock.patch.dict(os.environ, {**self.environment, **env}, clear=True),
            mock.patch.object(sys, "argv", ["mitosis", *words]),
            mock.patch.object(sys, "stdin", io.StringIO(stdin)),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            os.chdir(self.home)
            try:
                main()
            except SystemExit as ended:
                status = ended.code
            finally:
                os.chdir(before)
        assert isinstance(status, int)
        if status in (0, 1):
            self.driven.add(path_of(words))
        return Done(status, _text(out), _text(err))

    def process(self, *words: str, stdin: str = "", env: dict[str, str] | None = None) -> Done:
        done = subprocess.run(
            [*MITOSIS, *words],
            env={**self.environment, **(env or {})},
            input=stdin,
            text=True,
            capture_output=True,
            timeout=90,
            check=False,
            cwd=self.home,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """A real process that goes on beside the test."""
        return subprocess.Popen(
            [*MITOSIS, *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home,
        )

    def ok(self, *words: str, stdin: str = "") -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def json(self, *words: str, stdin: str = "") -> Any:
        """With `-o json` before any `--`, as a user would; checked against what is promised."""
        place = words.index("--") if "--" in words else len(words)
        found = json.loads(self.ok(*words[:place], "-o", "json", *words[place:], stdin=stdin))
        check_answer(path_of(words), found)
        return found

    def login(self) -> None:
        self.ok("login", "--coordinator", self.url, "--user", self.user, "--password-stdin",
                stdin=f"{self.password}\n")  # fmt: skip

    @contextmanager
    def terminal(self, *words: str) -> Iterator["Terminal"]:
        """The command with a terminal of its own on all three streams."""
        master, slave = pty.openpty()
        child = subprocess.Popen(
            [*MITOSIS, *words],
            env=self.environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=self.home,
            start_new_session=True,
        )
        os.close(slave)
        terminal = Terminal(child, master)
        try:
            yield terminal
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
            os.close(master)


class Terminal:
    """What a command drew, and the keys pressed at it."""

    def __init__(self, child: "subprocess.Popen[bytes]", master: int) -> None:
        self.child = child
        self._master = master
        self.seen = b""

    def read_until(self, text: str, *, within_s: float = 60) -> bytes:
        deadline = time.monotonic() + within_s
        while text.encode() not in self.seen:
            assert time.monotonic() < deadline, self.seen
            assert self._read() or text.encode() in self.seen, self.seen
        return self.seen

    def finish(self, *, within_s: float = 60) -> tuple[int, bytes]:
        """Until it ends; its status and all it drew."""
        deadline = time.monotonic() + within_s
        while self._read():
            assert time.monotonic() < deadline, self.seen
        return self.child.wait(timeout=20), self.seen

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.child.send_signal(signal.SIGINT)

    def _read(self) -> bool:
        """False at the end of the terminal."""
        ready, _, _ = select.select([self._master], [], [], 0.5)
        if not ready:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self.seen += data
        return bool(data)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode()


@contextmanager
def running_lab(root: Path) -> Iterator[AgentLab]:
    """A cluster and one agent that serves the admin's own group."""
    with Cluster(root, environment=BRISK) as cluster:
        lab = AgentLab(cluster)
        try:
            with lab.agent("one"):
                lab.wait_for_managers(1)
                yield lab
        finally:
            lab.close()


def shell_of(lab: AgentLab, home: Path) -> Shell:
    home.mkdir(exist_ok=True)
    return Shell(home, lab.cluster.url, lab.user.name, lab.user.password)


def client_of(lab: AgentLab) -> Client:
    client = Client(lab.cluster.url)
    client.login(lab.user.name, lab.user.password)
    return client
