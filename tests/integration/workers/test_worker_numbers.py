"""What liveness costs: one beat, and the checks over ten thousand workers.

Best of several tries: a busy machine may only make them slower than they are.
"""

import statistics
import time
import uuid
from collections.abc import Callable

import pytest
from django.conf import settings
from django.db import connection

from accounts.models import User
from core.pg import load_sql
from mitosis_protocol.enums import TokenKind
from runners.authentication import authenticate_bearer
from runners.services.presence import mark_served
from tasks.services.reclaim import reap_expired
from tests.integration.workers.inprocess import Site
from tests.integration.workers.people import new_task, new_worker
from workers.models import WorkerStatus
from workers.services.departure import end_leaving, list_removed_holders, retire_silent
from workers.services.heartbeat import record_beat

WORKERS = 10_000


def best_ms(call: Callable[[], object], tries: int = 5) -> float:
    times = []
    for _ in range(tries):
        started = time.perf_counter()
        call()
        times.append((time.perf_counter() - started) * 1000)
    return min(times)


@pytest.fixture
def _fleet(owner: User) -> None:
    """Ten thousand workers; a hundred of them silent for hours."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runners (uuid, kind, owner_id, conn_state, desired_state, tags, labels,"
            " created_at, updated_at) SELECT gen_random_uuid(), 1, %s, 1, 0, '{}', '{}', now(),"
            " now() FROM generate_series(1, %s)",
            [owner.pk, WORKERS],
        )
        cursor.execute(
            "INSERT INTO runner_leases (runner_id, session_epoch, expires_at) SELECT id, 0,"
            " now() + CASE WHEN id % 100 = 0 THEN interval '-9 hours' ELSE interval '1 hour' END"
            " FROM runners"
        )
        cursor.execute("INSERT INTO workers (runner_id, lease_ttl_s) SELECT id, 120 FROM runners")
        cursor.execute("ANALYZE runners, runner_leases, workers, active_tasks")


@pytest.mark.alone
@pytest.mark.usefixtures("_fleet")
def test_the_stale_checks_of_ten_thousand_workers_take_less_than_100_ms(owner: User):
    policy = settings.MITOSIS
    new_task(owner)
    checks = {
        "reap": lambda: reap_expired(
            grace_s=policy.reaper_grace_s,
            patience_s=policy.mass_expiry_patience_s,
            mass_expiry_ratio=policy.mass_expiry_ratio,
            max_tasks=policy.sweep_batch,
        ),
        "end departures": lambda: (end_leaving(), list_removed_holders()),
        "retire": lambda: retire_silent(inactive_s=10 * policy.worker_inactive_s),
    }
    taken = {name: best_ms(check) for name, check in checks.items()}
    assert max(taken.values()) < 100, taken
    counts = WorkerStatus.objects.values_list("status", flat=True)
    assert best_ms(lambda: list(counts), tries=3) < 1000


@pytest.mark.alone
@pytest.mark.usefixtures("_fleet")
def test_a_mark_of_presence_is_cheap_except_after_a_gap(site: Site):
    site.run(mark_served(lease_ttl_s=120))
    assert best_ms(lambda: site.run(mark_served(lease_ttl_s=120))) < 50


def test_half_of_all_beats_take_less_than_5_ms(site: Site, owner: User):
    registered = new_worker(owner)
    header = f"Bearer {registered.token}"

    async def beat_often() -> float:
        identity = await authenticate_bearer(header, TokenKind.WORKER)
        times = []
        for _ in range(51):
            started = time.perf_counter()
            await record_beat(identity, ttl_s=120)
            times.append((time.perf_counter() - started) * 1000)
        return statistics.median(times)

    assert min(site.run(beat_often()) for _ in range(3)) < 5


@pytest.mark.usefixtures("_fleet")
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("heartbeat", {"runner_id": 1, "ttl_s": 120.0, "metadata": None}),
        ("held_by_worker", {"runner_id": 1, "overrun_s": 60.0}),
        ("attempt_in_hand", {"runner_id": 1, "uuid": uuid.uuid4()}),
        ("end_leaving", {"runner_ids": [1]}),
    ],
)
def test_no_statement_of_a_request_reads_a_whole_table(name: str, parameters: dict[str, object]):
    with connection.cursor() as cursor:
        # Empty tables are read whole for a good reason; this asks for the plan of full ones.
        cursor.execute("SET enable_seqscan = off")
        try:
            cursor.execute(f"EXPLAIN {load_sql('workers', name)}", parameters)
            plan = "\n".join(row[0] for row in cursor.fetchall())
        finally:
            cursor.execute("RESET enable_seqscan")
    assert "Index" in plan
    assert "Seq Scan" not in plan
