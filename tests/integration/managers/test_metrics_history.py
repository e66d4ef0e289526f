"""What managers measured: written with heartbeats, rolled up by the hour, kept for a while."""

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction

from accounts.models import User
from core import clock
from core.errors import InvalidInput
from core.pg import close_pool, open_pool
from managers.models import NodeManager
from managers.services import metrics_history
from managers.services.heartbeat import Beat, record_beat, record_beats
from managers.services.sweeps import run_sweep
from mitosis_protocol.enums import ManagerState
from runners.models import Runner
from tests.integration.accounts.api_client import Api
from tests.integration.managers.fleet import age, register
from tests.integration.suites.campaign import make_user
from tests.integration.workers.inprocess import served_database

pytestmark = pytest.mark.django_db(transaction=True)

TTL_S = 120.0


@pytest.fixture(autouse=True)
def _no_old_samples(transactional_db: None) -> None:
    """These tables are no models: nobody else empties them."""
    rows("TRUNCATE manager_samples, manager_hours, manager_hours_done")


@pytest.fixture
def ada() -> User:
    return make_user("ada")


def rows(sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []


def beat(manager: Runner, **metrics: object) -> Beat:
    return Beat(manager.pk, 0, ManagerState.IDLE, metrics=metrics)


def sample(manager: Runner, at: datetime, **numbers: float) -> None:
    named = {f"system.{name}": number for name, number in numbers.items()}
    values = ", ".join(f"'{name}', {number}::float8" for name, number in named.items())
    rows(
        f"INSERT INTO manager_samples VALUES (%s, %s, jsonb_build_object({values}))",
        manager.pk,
        at,
    )


def on_pool(work: Callable[[], Any]) -> Any:
    async def run() -> Any:
        await open_pool(served_database())
        try:
            return await work()
        finally:
            await close_pool()

    return asyncio.run(run())


def test_heartbeats_of_many_are_one_statement_and_a_sample_comes_every_half_minute(
    ada: User,
) -> None:
    fleet = [register(ada) for _ in range(3)]
    beats = [beat(one, active_workers=4, families={"system": {"load": 1.5}}) for one in fleet]

    async def twice() -> None:
        assert len(await record_beats(beats, ttl_s=TTL_S)) == 3
        await record_beats(beats, ttl_s=TTL_S)

    on_pool(twice)
    found = rows("SELECT manager_id, numbers::text, at FROM manager_samples ORDER BY manager_id")
    assert [row[0] for row in found] == [one.pk for one in fleet]
    assert {row[1] for row in found} == {'{"system.load": 1.5, "manager.active_workers": 4.0}'}
    assert len({row[2] for row in found}) == 1, "one statement"
    age("node_managers", "true", sampled_at=metrics_history.SAMPLE_S)
    record_beat(beats[0], ttl_s=TTL_S)
    assert rows("SELECT count(*) FROM manager_samples") == [(4,)]


def test_a_heartbeat_without_metrics_leaves_no_sample(ada: User) -> None:
    manager = register(ada)
    record_beat(Beat(manager.pk, 0, ManagerState.IDLE), ttl_s=TTL_S)
    assert rows("SELECT count(*) FROM manager_samples") == [(0,)]
    assert NodeManager.objects.get(pk=manager.pk).sampled_at is None


def test_a_history_that_cannot_be_written_does_not_fail_a_heartbeat(ada: User) -> None:
    manager = register(ada)
    held, release = threading.Event(), threading.Event()

    def block() -> None:
        with transaction.atomic():
            rows("LOCK TABLE manager_samples IN ACCESS EXCLUSIVE MODE")
            held.set()
            release.wait(60)
        connection.close()

    thread = threading.Thread(target=block)
    thread.start()
    assert held.wait(60)
    try:
        assert record_beat(beat(manager, active_workers=1), ttl_s=TTL_S)
        age("node_managers", "true", sampled_at=metrics_history.SAMPLE_S)
        assert on_pool(lambda: record_beats([beat(manager, active_workers=1)], ttl_s=TTL_S))
    finally:
        release.set()
        thread.join()
    assert NodeManager.objects.get(pk=manager.pk).metrics == {"active_workers": 1}


def test_full_hours_are_rolled_up_once(ada: User) -> None:
    manager = register(ada)
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for minute, load in ((0, 1.0), (10, 2.0), (59, 6.0)):
        sample(manager, hour - timedelta(hours=2) + timedelta(minutes=minute), load=load)
    sample(manager, datetime.now(UTC), load=99.0)
    days = settings.MITOSIS.metrics_days
    rounds = 0
    while metrics_history.roll_up_hours(sample_days=days):
        rounds += 1
        assert rounds < 24 * days + 2, "it never ends"
    numbers = ", ".join(f"({name} ->> 'system.load')::float8" for name in ("mean", "low", "high"))
    found = rows(f"SELECT manager_id, at, samples, {numbers} FROM manager_hours")
    assert found == [(manager.pk, hour - timedelta(hours=2), 3, 3.0, 1.0, 6.0)]
    assert metrics_history.roll_up_hours(sample_days=days) == 0


def partitions(table: str) -> set[str]:
    found = rows(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = %s::regclass",
        table,
    )
    return {row[0] for row in found}


@pytest.fixture
def _default_partitions_only() -> Any:
    """Sweeps that ran in other tests of this process may have made some; these must leave none."""
    drop_partitions()
    yield
    drop_partitions()


def drop_partitions() -> None:
    for table in ("manager_samples", "manager_hours"):
        for name in partitions(table) - {f"{table}_default"}:
            rows(f"DROP TABLE {name}")


@pytest.mark.usefixtures("_default_partitions_only")
def test_partitions_are_made_ahead_filled_and_dropped(ada: User) -> None:
    manager = register(ada)
    keep = {"sample_days": 7, "hourly_days": 90}
    now = datetime.now(UTC)
    sample(manager, now, load=1.0)
    assert rows("SELECT count(*) FROM manager_samples_default") == [(1,)]
    assert metrics_history.keep_partitions(**keep) == 8
    assert metrics_history.keep_partitions(**keep) == 0, "idempotent"
    assert rows("SELECT count(*) FROM manager_samples_default") == [(0,)], "it moved over"
    today = f"manager_samples_p{now:%Y%m%d}"
    assert rows("SELECT tableoid::regclass::text FROM manager_samples") == [(today,)]
    sample(manager, now + timedelta(days=1), load=2.0)
    assert rows("SELECT count(*) FROM manager_samples_default") == [(0,)], "made ahead"
    with clock.using(lambda: now + timedelta(days=7)):
        metrics_history.keep_partitions(**keep)
        assert today in partitions("manager_samples"), "seven full days are kept"
    with clock.using(lambda: now + timedelta(days=9)):
        metrics_history.keep_partitions(**keep)
    assert today not in partitions("manager_samples")
    assert rows("SELECT count(*) FROM manager_samples") == [(1,)]


@pytest.mark.usefixtures("_default_partitions_only")
def test_upkeep_and_roll_up_run_as_sweeps(ada: User) -> None:
    assert run_sweep("managers.keep_partitions") == 8
    assert run_sweep("managers.roll_up_metrics") == metrics_history.HOURS_PER_RUN


@pytest.fixture
def api(as_user: Callable[..., Api]) -> Api:
    return as_user("bob")


def test_a_window_is_answered_in_the_shape_of_the_rfc_and_as_series(api: Api) -> None:
    answer = api.post("/managers", {"tags": [], "labels": [], "groups": []}).json()
    path = f"/managers/{answer['manager_uuid']}/metrics"
    empty = api.get(path).json()
    assert (empty["latest"], empty["system_metrics"], empty["series"]["at"]) == (None, [], [])
    manager = Runner.objects.get(uuid=answer["manager_uuid"])
    families = {"system": {"load": 1.0}, "worker_pool": {"workers_active": 2}}
    for completed in (10, 40):
        sent = {"total_tasks_completed": completed, "active_workers": 2, "families": families}
        record_beat(beat(manager, **sent), ttl_s=TTL_S)
        age("node_managers", "true", sampled_at=60)
        age("manager_samples", "true", at=60)
    body = api.get(f"{path}?window=1h").json()
    assert (body["manager_id"], body["time_window"], body["resolution"]) == (
        str(manager.uuid),
        "1h",
        "30s",
    )
    assert body["latest"]["total_tasks_completed"] == 40
    assert [point["load"] for point in body["system_metrics"]] == [1.0, 1.0]
    assert body["task_throughput"]["completed"] == 30
    assert body["worker_health"] == {"active_workers": 2.0, "workers_active": 2.0}
    assert body["series"]["families"]["manager"]["total_tasks_completed"] == [10.0, 40.0]
    assert len(body["series"]["at"]) == 2


def test_days_are_answered_by_the_hour(api: Api) -> None:
    answer = api.post("/managers", {"tags": [], "labels": [], "groups": []}).json()
    manager = Runner.objects.get(uuid=answer["manager_uuid"])
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for back in (30, 3):
        sample(manager, hour - timedelta(hours=back), load=float(back))
    while metrics_history.roll_up_hours(sample_days=2):
        pass
    path = f"/managers/{manager.uuid}/metrics"
    week = api.get(f"{path}?window=7d").json()
    assert (week["resolution"], week["series"]["families"]) == ("1h", {"system": {"load": [30, 3]}})
    long = api.get(f"{path}?window=90d").json()
    assert long["resolution"] == "3h"
    assert api.get(f"{path}?window=12h").json()["series"]["families"] == {"system": {"load": [3.0]}}


@pytest.mark.parametrize("window", ["", "1", "0s", "91d", "30s", "soon", "-1h"])
def test_a_bad_window_is_refused_naming_it(api: Api, window: str) -> None:
    answer = api.post("/managers", {"tags": [], "labels": [], "groups": []}).json()
    refused = api.get(f"/managers/{answer['manager_uuid']}/metrics?window={window}")
    assert refused.status_code == 400
    assert "window" in refused.json()["msg"]


def test_a_nul_in_metrics_is_refused_by_name(ada: User) -> None:
    with pytest.raises(InvalidInput, match="metrics"):
        record_beat(beat(register(ada), note="a\x00b"), ttl_s=TTL_S)


def test_a_partition_that_is_made_under_a_sample_fails_no_heartbeat(ada: User) -> None:
    """The statement waits for the default partition, and is then told that it is the wrong one."""
    manager = register(ada)
    today = clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    kind = metrics_history.Partitioned("manager_samples", days=1, keep_days=7)
    rows(f"DROP TABLE IF EXISTS manager_samples_p{today:%Y%m%d}")
    renewed: dict[int, datetime] = {}

    async def beats() -> None:
        renewed.update(await record_beats([beat(manager, active_workers=4)], ttl_s=TTL_S))

    beating = threading.Thread(target=on_pool, args=(beats,))
    with transaction.atomic():
        metrics_history._make(kind, today)
        beating.start()
        wait_for_a_blocked_insert()
    beating.join()
    assert renewed.keys() == {manager.pk}


def wait_for_a_blocked_insert() -> None:
    deadline = time.monotonic() + 30
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
    while not rows(waiting, "manager_samples_default"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
