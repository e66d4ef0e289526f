"""Workers, coordinators and PostgreSQL die in the middle of tasks; every task still ends once."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.e2e.cluster import Cluster
from tests.harness import TestServices
from tests.integration.workers.live_user import (
    SHORT_LEASE,
    LiveUser,
    eventually,
    existing_worker,
    own_worker,
)
from tests.integration.workers.private_postgres import PrivatePostgres

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def postgres(
    services: TestServices, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivatePostgres]:
    server = PrivatePostgres(tmp_path_factory.mktemp("postgres"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def cluster(
    postgres: PrivatePostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Two coordinators on the private database, with leases of seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_URL", postgres.url)
        root = tmp_path_factory.mktemp("cluster")
        with Cluster(root, coordinators=2, environment=SHORT_LEASE) as running:
            yield running


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(cluster)
    yield found
    found.close()


def restart(cluster: Cluster, name: str) -> None:
    [service] = [service for service in cluster._services() if service.name == name]
    cluster.start(service)
    cluster._expected_dead.discard(name)


def outcomes(cluster: Cluster, uuids: list[str]) -> list[tuple[str, int]]:
    """How often each task stands in the archive, past all APIs."""
    with psycopg.connect(cluster.database_url) as connection:
        return connection.execute(
            "SELECT uuid::text, count(*) FROM archived_tasks"
            " WHERE uuid = ANY (%s::uuid[]) GROUP BY 1",
            [uuids],
        ).fetchall()


@pytest.mark.alone
def test_the_task_of_a_killed_worker_is_done_by_another(user: LiveUser, tmp_path: Path):
    gate = tmp_path / "gate"
    uuid = user.submit("sh", "-c", f"test -e {gate} || sleep 300", tags=("kill",))
    with own_worker(user, "victim", "--tags", "kill"):
        user.running(uuid)
        # Past its first beat, which makes it one of ours with a short lease.
        time.sleep(1)
        gate.touch()
        user.cluster.kill("victim")
        killed_at = time.monotonic()
    with own_worker(user, "heir", "--tags", "kill"):
        info = user.ended(uuid)
    assert time.monotonic() - killed_at < 15
    assert (info["outcome"], info["attempt"], info["failures"]) == ("succeeded", 2, 1)
    kinds = _events(user.cluster, uuid)
    assert kinds == ["submitted", "claimed", "requeued", "claimed", "finishing", "ended"]


@pytest.mark.parametrize("starter", [own_worker, existing_worker])
def test_a_killed_coordinator_costs_no_attempt(user: LiveUser, starter: object):
    tag = starter.__name__.replace("_", "-")
    uuid = user.submit("sh", "-c", "sleep 4; echo done", tags=(tag,), terminal_output=True)
    given = {"tags": (tag,)} if starter is existing_worker else {}
    flags = () if starter is existing_worker else ("--tags", tag)
    with starter(user, tag, *flags, **given) as worker:
        user.running(uuid)
        # All of them: a worker that only cannot reach its own is silent, and loses its lease.
        for name in ("web1", "web0"):
            user.cluster.kill(name)
        time.sleep(1)
        for name in ("web0", "web1"):
            restart(user.cluster, name)
        info = user.ended(uuid)
        assert worker.poll() is None
    assert (info["outcome"], info["attempt"], info["failures"]) == ("succeeded", 1, 0)
    assert user.archive(uuid, "std-log")["std-log/stdout.log"] == b"done\n"


def test_workers_outlive_a_killed_postgresql_and_so_do_their_results(
    user: LiveUser, postgres: PrivatePostgres, tmp_path: Path
):
    gate = tmp_path / "gate"
    script = f"while ! test -e {gate}; do sleep 0.1; done; echo r > $MITO_RESULT_DIR/r"
    ours = user.submit("sh", "-c", script, tags=("pg-ours",))
    theirs = user.submit("sh", "-c", script, tags=("pg-theirs",))
    with (
        own_worker(user, "pg-ours", "--tags", "pg-ours") as own,
        existing_worker(user, "pg-theirs", tags=("pg-theirs",)) as existing,
        existing_worker(user, "pg-idle", tags=("nothing",)) as idle,
    ):
        user.running(ours)
        user.running(theirs)
        postgres.kill()
        # Both commands end while nobody can take their reports.
        gate.touch()
        # Longer than tokens are remembered: even the sender of a report cannot be proven.
        time.sleep(7)
        postgres.start()
        for uuid in (ours, theirs):
            info = user.ended(uuid)
            assert (info["outcome"], info["attempt"]) == ("succeeded", 1)
            assert user.archive(uuid, "result")["result/r"] == b"r\n"
        assert [worker.poll() for worker in (own, existing, idle)] == [None] * 3
    assert sorted(outcomes(user.cluster, [ours, theirs])) == sorted([(ours, 1), (theirs, 1)])


def test_two_coordinators_serve_one_queue(user: LiveUser, tmp_path: Path):
    log = tmp_path / "log"
    first, second = user.cluster.urls
    script = f"echo $MITO_TASK_UUID >> {log}; sleep 0.1"
    with (
        own_worker(user, "at-first", "--tags", "two", url=first),
        own_worker(user, "at-second", "--tags", "two", url=second),
    ):
        uuids = [user.submit("sh", "-c", script, tags=("two",)) for _ in range(20)]
        eventually(lambda: log.exists() and len(log.read_text().split()) > 3)
        # One of them dies and stays away for a while: the other's worker goes on.
        user.cluster.kill("web1")
        for uuid in uuids:
            eventually(lambda u=uuid: u in log.read_text(), what="everything was started")
        restart(user.cluster, "web1")
        for uuid in uuids:
            assert user.ended(uuid)["outcome"] == "succeeded"
    assert sorted(outcomes(user.cluster, uuids)) == sorted((uuid, 1) for uuid in uuids)


def test_the_late_result_of_a_paused_worker_is_welcome_while_nobody_else_has_the_task(
    user: LiveUser,
):
    uuid = user.submit("sh", "-c", "sleep 1.5; echo late", tags=("late",), terminal_output=True)
    with own_worker(user, "sleeper", "--tags", "late") as sleeper:
        user.running(uuid)
        time.sleep(1)
        os.kill(sleeper.pid, signal.SIGSTOP)
        eventually(lambda: user.task(uuid)["state"] == "Ready", what="the lease ended")
        os.kill(sleeper.pid, signal.SIGCONT)
        info = user.ended(uuid)
    assert (info["outcome"], info["attempt"], info["failures"]) == ("succeeded", 1, 0)


def test_the_late_result_of_a_paused_worker_is_stale_once_another_has_the_task(
    user: LiveUser, tmp_path: Path
):
    gate = tmp_path / "gate"
    script = f"test -e {gate} && exit 0; touch {gate}; sleep 2; exit 7"
    uuid = user.submit("sh", "-c", script, tags=("stale",))
    with own_worker(user, "paused", "--tags", "stale") as paused:
        user.running(uuid)
        time.sleep(1)
        os.kill(paused.pid, signal.SIGSTOP)
        eventually(lambda: user.task(uuid)["state"] == "Ready", what="the lease ended")
        with own_worker(user, "second", "--tags", "stale"):
            info = user.ended(uuid)
        os.kill(paused.pid, signal.SIGCONT)
        assert (info["outcome"], info["attempt"]) == ("succeeded", 2)
        # The first one meets a refusal, forgets the attempt and takes the next task.
        following = user.submit("true", tags=("stale",))
        assert user.ended(following)["outcome"] == "succeeded"
        assert user.task(uuid) == info
    assert outcomes(user.cluster, [uuid]) == [(uuid, 1)]


def _events(cluster: Cluster, uuid: str) -> list[str]:
    names = ("submitted", "released", "claimed", "started", "finishing", "requeued", "failure",
             "cancel_requested", "ended", "adopted", "changed", "progress")  # fmt: skip
    with psycopg.connect(cluster.database_url) as connection:
        rows = connection.execute(
            "SELECT e.kind FROM task_events e JOIN archived_tasks t ON t.id = e.task_id"
            " WHERE t.uuid = %s ORDER BY e.seq",
            [uuid],
        ).fetchall()
    return [names[kind] for (kind,) in rows]
