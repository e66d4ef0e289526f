"""A clock of the nemesis moves what a running process believes, and the monotonic one stays."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.clocks import Clock

HOUR_S = 3600.0
TELLS = (
    "import sys, time, datetime\n"
    "from time import time as imported\n"
    "for _ in sys.stdin:\n"
    "    wall = datetime.datetime.now(datetime.UTC).timestamp()\n"
    "    print(time.time(), wall, imported(), time.monotonic(), flush=True)\n"
)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "clock")


@pytest.fixture
def teller(clock: Clock) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", TELLS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clock.environment(""),
    ) as child:
        yield child
        assert child.stdin is not None
        child.stdin.close()


def ask(teller: subprocess.Popen[str]) -> tuple[list[float], float]:
    """How far ahead its three wall clocks are, and its monotonic one."""
    assert teller.stdin is not None
    assert teller.stdout is not None
    teller.stdin.write("\n")
    teller.stdin.flush()
    told = [float(word) for word in teller.stdout.readline().split()]
    return [one - time.time() for one in told[:3]], told[3] - time.monotonic()


def test_a_running_process_follows_every_step(clock: Clock, teller: subprocess.Popen[str]) -> None:
    for ahead_s in (0.0, HOUR_S, -HOUR_S, 600.0, 0.0):
        clock.step_to(ahead_s)
        walls, monotonic = ask(teller)
        assert walls == pytest.approx([ahead_s] * 3, abs=5)
        assert monotonic == pytest.approx(0, abs=5)
