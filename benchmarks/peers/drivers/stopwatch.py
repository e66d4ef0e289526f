"""What all drivers share: the plan they get, the clock, and the JSON lines they say.

Runs in the peer's own environment, so it imports nothing but the standard library.
"""

import importlib.metadata
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

DISTRIBUTIONS = {"dask": "distributed"}


@dataclass(frozen=True)
class Plan:
    """What to measure, and within which times."""

    count: int
    workers: int
    store: str
    directory: str
    start_s: float
    cap_s: float
    stop_s: float
    distribution: str


class Peer(Protocol):
    """A system that is up, as its user sees it."""

    def submit(self, count: int) -> Any: ...

    def collect(self, submitted: Any, deadline: float) -> int:
        """How many succeeded: all of them, or those done when the clock showed `deadline`."""


def measure(start: Callable[[Plan], AbstractContextManager[Peer]]) -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    answers = _answers()
    began = time.monotonic()
    signal.alarm(round(plan.start_s))
    with start(plan) as peer:
        warm_up = 50 * plan.workers  # as many as the product gets
        if peer.collect(peer.submit(warm_up), began + plan.start_s) != warm_up:
            raise SystemExit(f"the warm-up took more than {plan.start_s} s")
        signal.alarm(0)
        _say(answers, ready_s=time.monotonic() - began)
        began = time.monotonic()
        submitted = peer.submit(plan.count)
        submit_s = time.monotonic() - began
        done = peer.collect(submitted, began + plan.cap_s)
        seconds = time.monotonic() - began
        version = _version(plan.distribution)
        _say(answers, done=done, seconds=seconds, submit_s=submit_s, version=version)
        signal.alarm(round(plan.stop_s))  # a peer that does not stop by itself is stopped


def _answers() -> int:
    """The descriptor of our answers; whatever else is printed goes to the log."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _say(answers: int, **members: Any) -> None:
    os.write(answers, json.dumps(members).encode() + b"\n")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(DISTRIBUTIONS.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        return f"Python {platform.python_version()}"
