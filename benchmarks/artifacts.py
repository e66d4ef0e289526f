"""Tasks that leave something behind: a small result file and a line of output; whole stack.

Each task has two archives (result and std-log), and its line is live output, too. From the submit
to the last commit on a prepared suite, as benchmarks.throughput. "limit" is the two archives of a
task as bare PUTs to the same store, over as many connections as there are workers.
"""

import gzip
import http.client
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import psutil

from benchmarks.live_stack import LiveStack, live_stack
from benchmarks.measure import REPETITIONS, Figure, Row
from benchmarks.process_costs import Costs
from benchmarks.throughput import Suite, prepared_suite, tasks_per_s
from tasks.signing import Credentials, Signer

WORKERS: Final = (2, 4)
TASKS: Final = 500
LIMIT_TASKS: Final = 500
ARCHIVES: Final = 2  # of each task
SPEC: Final = {
    "args": ["sh", "-ec", 'echo {n} > "$MITO_RESULT_DIR/number.txt"; echo "this was {n}"'],
    "terminal_output": True,
}
# About what a tar of one short file comes to.
BODY: Final = gzip.compress(bytes(range(256)))
URL_S: Final = 3600


def run() -> list[Row]:
    rows: list[Row] = []
    with live_stack(agents=1) as stack:
        for workers in WORKERS:
            with prepared_suite(stack, workers) as suite:
                tasks_per_s(stack, suite, 10 * workers, SPEC)
                rows.append(_row(stack, suite, workers))
    return rows


def _row(stack: LiveStack, suite: Suite, workers: int) -> Row:
    ours: list[float] = []
    limit: list[float] = []
    notes: list[str] = []
    for _ in range(REPETITIONS):
        limit.append(put_tasks_per_s(stack, workers))
        costs = Costs(stack.supervisor)
        ours.append(tasks_per_s(stack, suite, TASKS, SPEC))
        notes.append(f"us of CPU a task: {costs.per_task(TASKS)}")
    notes.append(f"load of the machine afterwards: {psutil.getloadavg()[0]:.1f}")
    return Row(
        f"artifacts: {TASKS} tasks with two archives each, {workers} workers",
        Figure(tuple(ours), "a second"),
        limit=Figure(tuple(limit), "a second"),
        notes=notes,
    )


def put_tasks_per_s(stack: LiveStack, connections: int) -> float:
    """Tasks a second whose archives bare PUTs could bring to the store."""
    share = LIMIT_TASKS * ARCHIVES // connections
    lots = [_addresses(stack, share) for _ in range(connections)]
    with ThreadPoolExecutor(connections) as threads:
        began = time.monotonic()
        list(threads.map(_put_all, lots))
        return share * connections / ARCHIVES / (time.monotonic() - began)


def _addresses(stack: LiveStack, count: int) -> list[str]:
    """Signed ahead: that is the coordinator's work."""
    env = stack.environment
    account = Credentials(env["S3_ACCESS_KEY_ID"], env["S3_SECRET_ACCESS_KEY"])
    signer = Signer(env["S3_ENDPOINT_URL"], env.get("S3_REGION", "us-east-1"), account)
    bucket = env.get("S3_ARTIFACTS_BUCKET", "mitosis-artifacts")
    now = datetime.now(UTC)
    return [
        signer.put_url(bucket, f"bench/{uuid4()}", size=len(BODY), now=now, valid_s=URL_S)
        for _ in range(count)
    ]


def _put_all(urls: list[str]) -> None:
    connection = http.client.HTTPConnection(urlsplit(urls[0]).netloc, timeout=60)
    try:
        for url in urls:
            target = urlsplit(url)
            connection.request("PUT", f"{target.path}?{target.query}", body=BODY)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == HTTPStatus.OK
    finally:
        connection.close()
