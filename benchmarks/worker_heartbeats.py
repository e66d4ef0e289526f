"""What liveness of 10,000 workers costs: a heartbeat, inside and over HTTP, and each stale check.

"Handling" is what the application does with the request; the round trip adds the server, the socket
and the client, so its limit is a request that does nothing (`GET /health`), and that of handling
the bare update of the lease row in psycopg, synchronously committed. Limits are of the same run.
A hundred of the workers have been silent for hours.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import httpx2
import psycopg

from benchmarks.live_stack import LiveStack, live_stack
from benchmarks.measure import REPETITIONS, Figure, Row, repeat

WORKERS: Final = 10_000
BEATS: Final = 300  # in each repetition
CHECKS: Final = 9
BEAT_GOAL: Final = "p50 below 5 ms"
CHECK_GOAL: Final = "below 100 ms"
_RENEW: Final = (
    "UPDATE runner_leases SET expires_at = clock_timestamp() + interval '5 minutes' "
    "WHERE runner_id = (SELECT id FROM runners WHERE uuid = %s)"
)


def run() -> list[Row]:
    with live_stack() as stack:
        body = {"tags": [], "labels": [], "groups": [stack.group], "lifetime": None}
        registered = stack.post("/workers", body)
        with psycopg.connect(stack.database_url, autocommit=True) as connection:
            _enlist(connection)
            renew = repeat(
                lambda: _p50(lambda: connection.execute(_RENEW, [registered["worker_id"]])), "ms"
            )
        return [*_inside(stack, registered, renew), *_round_trips(stack, registered)]


def _enlist(connection: psycopg.Connection) -> None:
    connection.execute(
        "INSERT INTO runners (uuid, kind, owner_id, conn_state, desired_state, tags, labels,"
        " created_at, updated_at) SELECT gen_random_uuid(), 1, o.owner_id, 1, 0, '{}', '{}', now(),"
        " now() FROM (SELECT owner_id FROM runners LIMIT 1) o, generate_series(1, %s)",
        [WORKERS],
    )
    connection.execute(
        "INSERT INTO runner_leases (runner_id, session_epoch, expires_at) SELECT r.id, 0, now()"
        " + CASE WHEN r.id %% 100 = 0 THEN interval '-9 hours' ELSE interval '1 hour' END"
        " FROM runners r ON CONFLICT DO NOTHING",
        [],
    )
    connection.execute(
        "INSERT INTO workers (runner_id, lease_ttl_s) SELECT id, 300 FROM runners"
        " ON CONFLICT DO NOTHING"
    )
    connection.execute("VACUUM ANALYZE runners, runner_leases, workers")


def _bodies(registered: dict[str, Any]) -> dict[str, dict[str, Any] | None]:
    metadata = {"hostname": "bench", "pid": 1, "version": "1", "tasks_processed": 1}
    said = {"worker_id": registered["worker_id"], "metadata": metadata}
    return {"/workers/heartbeat": None, "/api/workers/heartbeat": said}


def _round_trips(stack: LiveStack, registered: dict[str, Any]) -> list[Row]:
    headers = {"Authorization": f"Bearer {registered['token']}"}
    with httpx2.Client(base_url=stack.http.base_url, timeout=60, headers=headers) as worker:
        idle = repeat(lambda: _p50(lambda: worker.get("/health").raise_for_status()), "ms")
        rows = []
        for path, body in _bodies(registered).items():

            def beat(path: str = path, body: dict[str, Any] | None = body) -> object:
                sent = worker.post(path) if body is None else worker.post(path, json=body)
                return sent.raise_for_status()

            ours = repeat(lambda beat=beat: _p50(beat), "ms")  # type: ignore[misc]
            rows.append(Row(f"heartbeat round trip p50: {path}", ours, limit=idle))
        return rows


def _p50(call: Callable[[], object]) -> float:
    times = []
    for _ in range(BEATS):
        began = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def _inside(stack: LiveStack, registered: dict[str, Any], renew: Figure) -> list[Row]:
    plan = {
        "checks": CHECKS,
        "times": BEATS,
        "token": registered["token"],
        "beats": _bodies(registered),
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.liveness_inside"],
        env={**stack.environment, "MITOSIS_LOG_LEVEL": "ERROR"},
        input=json.dumps(plan),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    taken = json.loads(done.stdout.splitlines()[-1])
    beats = [
        Row(
            f"heartbeat handling p50: {path}",
            Figure(tuple(medians), "ms"),
            limit=renew,
            goal=BEAT_GOAL,
        )
        for path, medians in taken["beats"].items()
    ]
    checks = [
        Row(
            f"stale check of {WORKERS:,} workers: {name}",
            # The medians of three thirds, as every other figure is the median of three.
            Figure(
                tuple(statistics.median(times[n::REPETITIONS]) for n in range(REPETITIONS)), "ms"
            ),
            goal=CHECK_GOAL,
        )
        for name, times in taken["checks"].items()
    ]
    return [*beats, *checks]
