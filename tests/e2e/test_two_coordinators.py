"""Two coordinators behind nginx and PgBouncer: one is killed, and nothing is lost or done twice."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from mitosis_site.health import object_store
from mitosis_site.readiness import Dependencies, check_readiness
from tests.debian_setup import PROXIES, find_program, missing
from tests.e2e.agent_lab import AgentLab
from tests.e2e.proxied_cluster import DOCKER, ProxiedCluster, fill
from tests.harness import TestServices
from tests.integration.workers.live_user import eventually

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.proxies,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing(PROXIES)), reason=f"no {', '.join(missing(PROXIES))} here"),
]

TASKS = 120
# Quick sweeps, but a lease that survives a busy machine: no host is lost here, only a coordinator.
STEADY = {"MITOSIS_POLICY": "heartbeat_s=2,lease_ttl_s=60,sweep_s=1,pool_wait_s=2"}
SESSIONS = 20  # default_pool_size of the example


@pytest.fixture(scope="module")
def lab(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentLab]:
    with ProxiedCluster(tmp_path_factory.mktemp("proxied"), STEADY) as cluster:
        found = AgentLab(cluster)
        yield found
        found.close()


def test_agents_hop_to_the_other_coordinator_and_every_task_is_done_once(
    lab: AgentLab, open_dir: Path
) -> None:
    cluster = lab.cluster
    with lab.agent("one"), lab.agent("two"):
        lab.wait_for_managers(2)
        # nginx gives each coordinator one of them.
        eventually(lambda: all(served(cluster, name) for name in ("web0", "web1")), within_s=30)
        suite = lab.suite(workers=2, prefetch=8)
        script = f"echo $$ >> {open_dir}/$MITO_TASK_UUID; sleep 0.1"
        tasks = lab.submit(suite, [("sh", "-c", script)] * TASKS)
        eventually(lambda: len(list(open_dir.iterdir())) >= TASKS // 6, within_s=60)
        before = served(cluster, "web1")
        cluster.kill("web0")
        # Requests of people go on, too.
        tasks += lab.submit(suite, [("sh", "-c", script)] * 2)
        info = lab.wait_complete(suite, within_s=120)
        assert served(cluster, "web1") > before
    assert info["succeeded_tasks"] == len(tasks) == TASKS + 2
    assert {one["uuid"] for one in lab.tasks(suite)} == set(tasks)
    # An answer that died with its coordinator held a claim nobody ran; it is made once more.
    assert {one["attempt"] for one in lab.tasks(suite)} <= {1, 2}
    runs = {path.name: len(path.read_text().splitlines()) for path in open_dir.iterdir()}
    assert runs == dict.fromkeys(tasks, 1)


def served(cluster: ProxiedCluster, name: str) -> int:
    """How many sockets of managers a coordinator has opened so far."""
    return cluster.log(name).count('"socket.opened"')


def test_nothing_of_ours_stays_in_the_sessions_that_others_get_next(lab: AgentLab) -> None:
    cluster = lab.cluster
    assert isinstance(cluster, ProxiedCluster)
    names = ("enable_seqscan", "plan_cache_mode", "lock_timeout", "statement_timeout", "jit")
    text = ", ".join(f"current_setting('{name}')" for name in names)
    text += ", (SELECT count(*) FROM pg_prepared_statements)"
    seen = set()
    with ExitStack() as stack:
        for _ in range(SESSIONS):
            url = cluster.pooled_url()
            conn = stack.enter_context(psycopg.connect(url, prepare_threshold=None))
            # The transaction stays open, so the next look gets another session.
            seen.add(conn.execute(f"SELECT {text}").fetchone())
    assert seen == {("on", "auto", "2s", "15s", "off", 0)}
    with psycopg.connect(cluster.database_url) as direct:
        sessions = direct.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        ).fetchone()
    assert sessions is not None
    assert sessions[0] <= SESSIONS


async def test_a_pooler_without_limits_makes_a_coordinator_unready(lab: AgentLab) -> None:
    cluster = lab.cluster
    assert isinstance(cluster, ProxiedCluster)
    found = {}
    for database in ("mitosis", "bare"):
        needs = Dependencies(
            database_url=cluster.pooled_url(database),
            redis_url=os.environ["REDIS_URL"],
            store=object_store(),
            is_pooled=True,
        )
        found[database] = (await check_readiness(needs, limit_s=10))["postgres"]
    assert found["mitosis"].ok
    assert "connect_query" in found["bare"].detail


def test_bootstrap_refuses_to_work_through_the_pooler(lab: AgentLab) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "django", "bootstrap", "--admin-file", "unused"],
        env=lab.cluster.environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "DATABASE_POOLING" in done.stderr


def test_the_nginx_example_is_accepted_with_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "privkey.pem", tmp_path / "fullchain.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x",
               "-keyout", str(key), "-out", str(certificate)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    text = fill(
        DOCKER / "nginx/mitosis.conf",
        {
            "server coordinator-1:5000": "server 127.0.0.1:5001",
            "server coordinator-2:5000": "server 127.0.0.1:5002",
            "/etc/nginx/tls/fullchain.pem": str(certificate),
            "/etc/nginx/tls/privkey.pem": str(key),
            "listen 443 ssl;": "listen 127.0.0.1:20443 ssl;",
        },
    )
    (tmp_path / "mitosis.conf").write_text(text)
    main = f"pid {tmp_path}/pid; events {{}} http {{ include {tmp_path}/mitosis.conf; }}"
    (tmp_path / "nginx.conf").write_text(main)
    program = find_program("nginx")
    assert program is not None
    done = subprocess.run(
        [program, "-t", "-e", "stderr", "-c", str(tmp_path / "nginx.conf")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
