"""Celery with Valkey as broker and result backend: one worker with a process per slot."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stopwatch import Plan, measure
from worker_processes import running


class CeleryPeer:
    """Messages one by one, results one by one, as `delay` and `get` do."""

    def __init__(self, task: Any, too_late: type[Exception]) -> None:
        self._task = task
        self._too_late = too_late

    def submit(self, count: int) -> list[Any]:
        return [self._task.delay() for _ in range(count)]

    def collect(self, submitted: list[Any], deadline: float) -> int:
        for done, result in enumerate(submitted):
            try:
                result.get(timeout=max(0.01, deadline - time.monotonic()))
            except self._too_late:
                return done
        return len(submitted)


@contextmanager
def start(plan: Plan) -> Iterator[CeleryPeer]:
    os.environ["PEER_STORE"] = plan.store
    # Known only now where the store is.
    import celery_app  # noqa: PLC0415
    from celery.exceptions import TimeoutError as TooLate  # noqa: PLC0415

    words = ["celery", "-A", "celery_app", "worker", "--loglevel", "WARNING"]
    with running([*words, "--concurrency", str(plan.workers)], store=plan.store):
        yield CeleryPeer(celery_app.task, TooLate)


if __name__ == "__main__":
    measure(start)
