"""HyperQueue's LocalCluster: server and workers inside this process, without a journal.

The wheel has no `hq` program, so this is the least that HyperQueue can do, not the most.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from command import COMMAND
from hyperqueue import Job, LocalCluster
from hyperqueue.client import Client
from hyperqueue.cluster import WorkerConfig
from hyperqueue.job import SubmittedJob
from stopwatch import Plan, measure

LOOK_S = 0.05  # `wait_for_jobs` itself looks once a second, which would be a tenth of a short run


class NotYet(Exception):
    """The job has tasks left."""


class HyperQueue:
    """One job whose tasks are programs without output files."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def submit(self, count: int) -> SubmittedJob:
        job = Job()
        for _ in range(count):
            job.program([COMMAND], stdout=None, stderr=None)
        return self._client.submit(job)

    def collect(self, submitted: SubmittedJob, deadline: float) -> int:
        count = len(submitted.job.tasks)
        while (done := self._finished(submitted)) < count and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return done

    def _finished(self, submitted: SubmittedJob) -> int:
        """One look: the callback ends the wait when the job has not ended."""
        finished = 0

        def note(jobs: dict[int, dict[str, int]]) -> None:
            nonlocal finished
            finished = sum(job["finished"] for job in jobs.values())
            if not all(job["completed"] for job in jobs.values()):
                raise NotYet

        try:
            failed = self._client.connection.wait_for_jobs((submitted.id,), note)
        except NotYet:
            return finished
        if failed:
            raise SystemExit("a task failed")
        return len(submitted.job.tasks)


@contextmanager
def start(plan: Plan) -> Iterator[HyperQueue]:
    with LocalCluster(plan.directory) as cluster:
        for _ in range(plan.workers):
            cluster.start_worker(WorkerConfig(cores=1))
        yield HyperQueue(cluster.client())


if __name__ == "__main__":
    measure(start)
