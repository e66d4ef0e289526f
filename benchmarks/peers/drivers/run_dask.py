"""dask.distributed: a scheduler and one single-threaded process per worker."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from command import run_command
from distributed import Client, Future, LocalCluster, wait
from stopwatch import Plan, measure


class Dask:
    """Futures of functions that are never taken for the same."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def submit(self, count: int) -> list[Future]:
        futures: list[Future] = self._client.map(run_command, range(count), pure=False)
        return futures

    def collect(self, submitted: list[Future], deadline: float) -> int:
        with suppress(TimeoutError):
            wait(submitted, timeout=max(0.01, deadline - time.monotonic()))
        states = [future.status for future in submitted]
        if "error" in states:
            raise SystemExit("a task failed")
        return states.count("finished")


@contextmanager
def start(plan: Plan) -> Iterator[Dask]:
    with (
        LocalCluster(
            n_workers=plan.workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=plan.directory,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield Dask(client)


if __name__ == "__main__":
    measure(start)
