"""Hurts a running embedded stack at random (by seed) while a client keeps submitting tasks.

The client's own record of acknowledged submits, kept outside the system, is compared with what
the system knows afterwards: nothing acknowledged may be missing or stand there twice.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx2
import psutil

from tests.e2e.stack_client import Stack, alive, eventually

PARTS = ("postgres", "valkey", "s3", "web", "celery-worker", "celery-beat")
# How long a stopped process stays stopped: longer than most timeouts of a healthy request path.
PAUSE_S = (0.3, 3.0)
HEAL_S = 60.0


@dataclass
class Verdict:
    """What a run found; all but the first two must be zero."""

    faults: int = 0
    tasks: int = 0
    lost: int = 0
    doubled: int = 0
    stuck: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"faults={self.faults} tasks={self.tasks} lost={self.lost} "
            f"doubled={self.doubled} stuck={self.stuck}"
        )


class Submitter(threading.Thread):
    """Submits tasks one by one; remembers what was acknowledged and never stops for an error."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(daemon=True)
        self._stack = stack
        self._halt = threading.Event()
        self.acknowledged: dict[str, str] = {}

    def run(self) -> None:
        number = 0
        while not self._halt.is_set():
            number += 1
            label = f"chaos-{number}"
            try:
                self.acknowledged[label] = self._submit(label)
            except httpx2.HTTPError:
                # Unknown outcome: not acknowledged, so nothing is promised for it.
                time.sleep(0.1)

    def halt(self) -> None:
        self._halt.set()
        self.join(timeout=30)

    def _submit(self, label: str) -> str:
        answer = httpx2.post(
            f"{self._stack.url}/tasks",
            json={
                "group_name": self._stack.admin["username"],
                "tags": [],
                "labels": [label],
                "timeout": "1m",
                "priority": 0,
                "task_spec": {"args": ["true"]},
            },
            headers={"Authorization": f"Bearer {self._stack.token()}"},
            timeout=10,
        )
        answer.raise_for_status()
        return str(answer.json()["uuid"])


class Nemesis:
    """One fault at a time; waits for the stack to heal before the next."""

    def __init__(self, stack: Stack, seed: int, verdict: Verdict) -> None:
        self._stack = stack
        self._random = random.Random(seed)
        self._verdict = verdict

    def strike(self) -> None:
        kind = self._random.choices(("kill", "pause", "supervisor"), (6, 3, 1))[0]
        part = self._random.choice(PARTS)
        if kind == "supervisor":
            self._kill_supervisor()
        elif kind == "kill":
            os.kill(self._stack.child_pid(part), signal.SIGKILL)
        else:
            self._pause(part)
        self._verdict.faults += 1
        self._verdict.by_kind[kind if kind == "supervisor" else f"{kind} {part}"] += 1
        try:
            eventually(self._stack.is_ready, within_s=HEAL_S, what="ready after a fault")
        except AssertionError:
            self._verdict.stuck += 1

    def _pause(self, part: str) -> None:
        pid = self._stack.child_pid(part)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self._random.uniform(*PAUSE_S))
        os.kill(pid, signal.SIGCONT)

    def _kill_supervisor(self) -> None:
        processes = self._stack.processes()
        os.kill(self._stack.supervisor_pid, signal.SIGKILL)
        eventually(lambda: not alive(processes), within_s=5, what="children gone")
        self._stack.up()


def run(
    stack: Stack, *, seed: int, seconds: float | None = None, faults: int | None = None
) -> Verdict:
    """Strike until the time or the number of faults is reached, then compare the records."""
    verdict = Verdict()
    submitter = Submitter(stack)
    submitter.start()
    nemesis = Nemesis(stack, seed, verdict)
    deadline = time.monotonic() + (seconds or float("inf"))
    while time.monotonic() < deadline and (faults is None or verdict.faults < faults):
        nemesis.strike()
    submitter.halt()
    _compare(stack, submitter.acknowledged, verdict)
    return verdict


def _compare(stack: Stack, acknowledged: dict[str, str], verdict: Verdict) -> None:
    known = Counter(
        label for task in _all_tasks(stack) for label in task["labels"] if label in acknowledged
    )
    verdict.tasks = len(acknowledged)
    verdict.lost = sum(1 for label in acknowledged if known[label] == 0)
    verdict.doubled = sum(1 for label in acknowledged if known[label] > 1)


def _all_tasks(stack: Stack) -> list[dict]:
    tasks: list[dict] = []
    headers = {"Authorization": f"Bearer {stack.token()}"}
    while True:
        answer = httpx2.post(
            f"{stack.url}/tasks/query",
            json={"count": False, "limit": 500, "offset": len(tasks)},
            headers=headers,
            timeout=30,
        )
        answer.raise_for_status()
        page = answer.json()["tasks"]
        tasks += page
        if not page:
            return tasks


def orphans(stack: Stack) -> list[psutil.Process]:
    """Processes that still work below the data directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(stack.data_dir)):
                found.append(process)
        except psutil.Error:
            continue
    return found
