"""Parsl with its HighThroughputExecutor: an interchange and one block of workers."""

import concurrent.futures
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import parsl
from command import run_command
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
from stopwatch import Plan, measure


class Parsl:
    """Futures of a Python app."""

    def __init__(self) -> None:
        self._app = parsl.python_app(run_command)

    def submit(self, count: int) -> list[Future[Any]]:
        return [self._app() for _ in range(count)]

    def collect(self, submitted: list[Future[Any]], deadline: float) -> int:
        left_s = max(0.0, deadline - time.monotonic())
        done, _ = concurrent.futures.wait(submitted, timeout=left_s)
        for future in done:
            future.result()
        return len(done)


@contextmanager
def start(plan: Plan) -> Iterator[Parsl]:
    executor = HighThroughputExecutor(
        address="127.0.0.1",
        max_workers_per_node=plan.workers,
        provider=LocalProvider(init_blocks=1, min_blocks=1, max_blocks=1),
    )
    config = Config(executors=[executor], run_dir=plan.directory, strategy="none", usage_tracking=0)
    with parsl.load(config):
        yield Parsl()


if __name__ == "__main__":
    measure(start)
