"""Ray: one node on the loopback interface with a processor per worker."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from command import run_command
from stopwatch import Plan, measure

OBJECT_STORE_BYTES = 200_000_000  # by default a third of the memory


class Ray:
    """Remote functions, each of which takes a whole processor."""

    def __init__(self) -> None:
        self._remote = ray.remote(num_cpus=1)(run_command)

    def submit(self, count: int) -> list[Any]:
        return [self._remote.remote() for _ in range(count)]

    def collect(self, submitted: list[Any], deadline: float) -> int:
        left_s = max(0.0, deadline - time.monotonic())
        ready, _ = ray.wait(submitted, num_returns=len(submitted), timeout=left_s)
        return len(ray.get(ready))


@contextmanager
def start(plan: Plan) -> Iterator[Ray]:
    ray.init(
        num_cpus=plan.workers,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=OBJECT_STORE_BYTES,
        _node_ip_address="127.0.0.1",
        _temp_dir=plan.directory,
    )
    try:
        yield Ray()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    measure(start)
