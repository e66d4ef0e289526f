"""How long single calls take: a suite, a manager, and a cancel until the process tree is gone.

One call at a time on a stack with nothing else to do. p50 is the figure, p99 a row of its own; for
cancels of commands that ignore SIGTERM the slowest stands for the p99.
"""

import itertools
import time
from collections.abc import Callable
from typing import Final

import psutil

from benchmarks.live_stack import LiveStack, live_stack
from benchmarks.manager_fleet import p99, percentile
from benchmarks.measure import REPETITIONS, Figure, Row
from benchmarks.throughput import Suite, prepared_suite

CALLS: Final = 60  # in each repetition
PAUSE_S: Final = 0.03  # below the rate a user may have
CANCELS: Final = 10
STUBBORN: Final = 2
PATIENCE_S: Final = 60.0

_numbers = itertools.count(1)


def run() -> list[Row]:
    with live_stack(agents=1) as stack:
        rows = _pair("suite creation", lambda: _create_suite(stack), CALLS)
        rows += _pair("manager registration", lambda: _register(stack), CALLS)
        with prepared_suite(stack, workers=2) as suite:
            rows += _pair("cancel to end of tree", lambda: _cancel(stack, suite, ""), CANCELS)
            stubborn = [
                max(_cancel(stack, suite, "trap '' TERM; ") for _ in range(STUBBORN))
                for _ in range(REPETITIONS)
            ]
    rows.append(
        Row("latency: cancel, TERM ignored, slowest", Figure(tuple(stubborn), "ms"),
            goal="under 6,000 ms")
    )  # fmt: skip
    return rows


def _pair(name: str, call: Callable[[], float], count: int) -> list[Row]:
    middle: list[float] = []
    slow: list[float] = []
    for _ in range(REPETITIONS):
        took: list[float] = []
        for _ in range(count):
            took.append(call())
            time.sleep(PAUSE_S)
        middle.append(percentile(took, 0.5))
        slow.append(p99(took))
    is_cancel = name.startswith("cancel")
    return [
        Row(f"latency: {name}, p50", Figure(tuple(middle), "ms"),
            goal="under 200 ms" if is_cancel else "under 20 ms"),
        Row(f"latency: {name}, p99", Figure(tuple(slow), "ms"),
            goal="" if is_cancel else "under 100 ms"),
    ]  # fmt: skip


def _create_suite(stack: LiveStack) -> float:
    # Tags that no manager has: nobody is engaged, which would be measured by the next call.
    body = {
        "group_name": stack.group,
        "worker_schedule": {"worker_count": 1},
        "tags": ["nowhere"],
    }
    began = time.monotonic()
    stack.post("/suites", body)
    return 1000 * (time.monotonic() - began)


def _register(stack: LiveStack) -> float:
    began = time.monotonic()
    stack.post("/managers", {"tags": ["bench"], "groups": []})
    return 1000 * (time.monotonic() - began)


def _cancel(stack: LiveStack, suite: Suite, prelude: str) -> float:
    """From the request to the moment in which the last process of the task is gone."""
    mark = f"60{next(_numbers):05d}.5"
    spec = {"args": ["/bin/sh", "-c", f"{prelude}sleep {mark}; true"]}
    task = stack.post("/tasks", stack.task(suite_uuid=suite.uuid, task_spec=spec))["uuid"]
    processes = _await_tree(stack, mark)
    began = time.monotonic()
    stack.http.delete(f"/tasks/{task}").raise_for_status()
    while any(_is_running(process) for process in processes):
        if time.monotonic() - began > PATIENCE_S:
            raise TimeoutError(f"task {task} is still there")
        time.sleep(0.002)
    return 1000 * (time.monotonic() - began)


def _await_tree(stack: LiveStack, mark: str) -> list[psutil.Process]:
    """The shell and its sleep."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = [one for one in stack.supervisor.children(recursive=True) if _has(one, mark)]
        if len(found) == 2:
            return found
        time.sleep(0.02)
    raise TimeoutError(f"no process has {mark}")


def _has(process: psutil.Process, mark: str) -> bool:
    try:
        return mark in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
