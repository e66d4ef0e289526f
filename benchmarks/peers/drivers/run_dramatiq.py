"""Dramatiq with Valkey as broker and result backend: a process with one thread per worker."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stopwatch import Plan, measure
from worker_processes import running


class Dramatiq:
    """Messages one by one, results one by one."""

    def __init__(self, task: Any, too_late: type[Exception]) -> None:
        self._task = task
        self._too_late = too_late

    def submit(self, count: int) -> list[Any]:
        return [self._task.send() for _ in range(count)]

    def collect(self, submitted: list[Any], deadline: float) -> int:
        for done, message in enumerate(submitted):
            left_ms = max(1, round(1000 * (deadline - time.monotonic())))
            try:
                message.get_result(block=True, timeout=left_ms)
            except self._too_late:
                return done
        return len(submitted)


@contextmanager
def start(plan: Plan) -> Iterator[Dramatiq]:
    os.environ["PEER_STORE"] = plan.store
    # Known only now where the store is.
    import dramatiq_app  # noqa: PLC0415
    from dramatiq.results import ResultTimeout  # noqa: PLC0415

    words = ["dramatiq", "dramatiq_app", "--processes", str(plan.workers), "--threads", "1"]
    with running(words, store=plan.store):
        yield Dramatiq(dramatiq_app.task, ResultTimeout)


if __name__ == "__main__":
    measure(start)
