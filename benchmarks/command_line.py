"""What a person waits for at the shell: a short command, a run on a warm host, a large submit.

Real processes of `mitosis` against an embedded stack with one agent. The limit of a short command
is a Python that imports nothing; the limit of a large submit is the same request by hand.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.live_stack import LiveStack, live_stack
from benchmarks.measure import Figure, Row, repeat
from mitosis_stack.commands import Credentials

MITOSIS = (sys.executable, "-m", "mitosis_client.cli.main")
TIMES = 5
ARRAY = 10_000


class Shell:
    """A user's shell, logged in."""

    def __init__(self, home: Path, credentials: Credentials) -> None:
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": str(Path.cwd()),
            "MITO_TOKENS": "file",
        }
        words = ("login", "--coordinator", credentials.url, "--user", credentials.username)
        self.time(*words, "--password-stdin", stdin=credentials.password)

    def time(self, *words: str, stdin: str = "") -> float:
        """Seconds from the first byte of Python to the end of the process."""
        began = time.monotonic()
        subprocess.run(
            [*MITOSIS, *words],
            env=self._env,
            input=stdin,
            text=True,
            check=True,
            timeout=120,
            capture_output=True,
        )
        return time.monotonic() - began


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as home, live_stack(agents=1) as stack:
        shell = Shell(Path(home), stack.credentials)
        bare = repeat(_bare_python, "s", TIMES)
        short = repeat(lambda: shell.time("whoami"), "s", TIMES)
        warm_up = ("run", "--suite", "warm", "--wait", "-o", "quiet", "--", "true")
        cold = Figure((shell.time(*warm_up),), "s")
        warm = repeat(lambda: shell.time(*warm_up), "s", TIMES)
        alone = ("run", "--wait", "-o", "quiet", "--", "true")
        again = repeat(lambda: shell.time(*alone), "s", TIMES)
        by_hand = repeat(lambda: _array(stack), "s")
        # A tag that no host has: they are taken, and cost nobody anything while we measure.
        words = ("run", "--suite", "many", "--tag", "nowhere", "--", "echo", "{x}")
        submit = repeat(lambda: shell.time(*words, "--x", f"1..{ARRAY}"), "s")
    return [
        Row("cli: whoami", short, limit=bare),
        Row("cli: run --wait -- true, first of a suite", cold),
        Row("cli: run --wait -- true, warm host", warm, goal="under 1.5 s"),
        Row("cli: run --wait -- true, each a suite of its own", again, goal="under 1.5 s"),
        Row("cli: 10,000 tasks in one line", submit, limit=by_hand, goal="under 3 s"),
    ]


def _bare_python() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.monotonic() - began


def _array(stack: LiveStack) -> float:
    began = time.monotonic()
    stack.submit_array(ARRAY)
    return time.monotonic() - began
