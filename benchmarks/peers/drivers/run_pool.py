"""A plain multiprocessing pool: what remains when there is no server at all."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.pool import IMapIterator, Pool

from command import run_command
from stopwatch import Plan, measure


class PlainPool:
    """One task a message, as with every other peer."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def submit(self, count: int) -> tuple[int, IMapIterator]:
        return count, self._pool.imap_unordered(run_command, range(count))

    def collect(self, submitted: tuple[int, IMapIterator], deadline: float) -> int:
        count, results = submitted
        for done in range(count):
            try:
                results.next(timeout=max(0.0, deadline - time.monotonic()))
            except multiprocessing.TimeoutError:
                return done
        return count


@contextmanager
def start(plan: Plan) -> Iterator[PlainPool]:
    with multiprocessing.Pool(plan.workers) as pool:
        yield PlainPool(pool)


if __name__ == "__main__":
    measure(start)
