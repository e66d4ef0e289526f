"""Direct workers and agents that show client certificates to a real TLS proxy."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
import websockets

from tests.debian_setup import PROXIES, missing
from tests.e2e.agent_lab import AgentLab
from tests.e2e.tls_cluster import HEADER, Authority, Issued, TlsCluster
from tests.harness import TestServices
from tests.integration.workers.live_user import (
    SHORT_LEASE,
    LiveUser,
    eventually,
    worker_program,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.proxies,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(missing(PROXIES)), reason=f"no {', '.join(missing(PROXIES))} here"),
]


@pytest.fixture(scope="module")
def cluster(
    services: TestServices, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsCluster]:
    with TlsCluster(tmp_path_factory.mktemp("tls"), SHORT_LEASE) as running:
        yield running


@pytest.fixture(scope="module")
def user(cluster: TlsCluster) -> Iterator[LiveUser]:
    found = LiveUser(cluster)
    yield found
    found.close()


def trusting(cluster: TlsCluster) -> tuple[str, str]:
    return "--tls-ca", str(cluster.authority.ca)


def register(cluster: TlsCluster, user: LiveUser, shown: Issued | None) -> dict[str, Any]:
    """As a worker that has the user's token and this certificate."""
    with httpx2.Client(verify=cluster.context(shown), headers=user.http.headers) as client:
        body = {"tags": [], "labels": [], "groups": [], "kind": "direct"}
        answer = client.post(f"{cluster.tls_url}/workers", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def knock(cluster: TlsCluster, token: str, shown: Issued | None, **headers: str) -> int:
    """The status with which the control plane answers an upgrade."""

    async def knock_once() -> int:
        url = cluster.tls_url.replace("https:", "wss:") + "/ws/workers"
        known = {"Authorization": f"Bearer {token}", **headers}
        context = cluster.context(shown)
        try:
            async with websockets.connect(url, ssl=context, additional_headers=known):
                return 101
        except websockets.InvalidStatus as refused:
            return refused.response.status_code

    return asyncio.run(knock_once())


def test_a_worker_with_its_certificate_runs_tasks_and_is_bound_to_it(
    cluster: TlsCluster, user: LiveUser
):
    mine = cluster.authority.issue("mine")
    uuid = user.submit("sh", "-c", "echo out; echo r > $MITO_RESULT_DIR/r", tags=("tls",))
    flags = ("--direct", "--tags", "tls", *trusting(cluster), *mine.flags)
    with worker_program(user, "with-certificate", *flags, url=cluster.tls_url):
        info = user.ended(uuid, within_s=60)
        assert info["outcome"] == "succeeded"
        # Bulk goes over HTTP, with the same certificate.
        assert user.archive(uuid, "result") == {"result/r": b"r\n"}
        with psycopg.connect(cluster.database_url) as connection:
            rows = connection.execute(
                "SELECT w.certificate FROM workers w JOIN runners r ON r.id = w.runner_id"
                " WHERE r.uuid = %s", (info["reporter_uuid"],),
            ).fetchall()  # fmt: skip
    assert rows == [(mine.fingerprint,)]


def test_a_stolen_token_is_worth_nothing_without_the_certificate(
    cluster: TlsCluster, user: LiveUser
):
    mine, other = (cluster.authority.issue(name) for name in ("owner", "thief"))
    token = register(cluster, user, mine)["token"]
    assert knock(cluster, token, mine) == 101
    assert knock(cluster, token, other) == 401
    assert knock(cluster, token, None) == 401
    # The proxy takes away what a client says of itself.
    assert knock(cluster, token, None, **{HEADER: mine.fingerprint}) == 401
    with httpx2.Client(
        verify=cluster.context(other), headers={"Authorization": f"Bearer {token}"}
    ) as thief:
        refused = thief.delete(f"{cluster.tls_url}/workers")
        assert (refused.status_code, refused.json()["code"]) == (401, "auth.mtls_required")


def test_a_worker_registered_without_a_certificate_needs_one_in_its_own_name(
    cluster: TlsCluster, user: LiveUser
):
    """This proxy says fingerprints, so nobody can have one."""
    token = register(cluster, user, None)["token"]
    assert knock(cluster, token, cluster.authority.issue("anybody")) == 401


def test_a_worker_without_a_certificate_is_told_and_ends(cluster: TlsCluster, user: LiveUser):
    flags = ("--direct", *trusting(cluster))
    with worker_program(user, "without", *flags, url=cluster.tls_url) as child:
        user.cluster.expect_exit("without")
        status = eventually(lambda: child.poll() is not None and [child.poll()], within_s=60)
        assert status != [0]
    assert "client certificate" in cluster.log("without")


def test_another_authority_is_not_trusted_by_the_worker(
    cluster: TlsCluster, user: LiveUser, tmp_path: Path
):
    stranger = Authority(tmp_path / "stranger")
    flags = ("--direct", "--tls-ca", str(stranger.ca))
    with worker_program(user, "distrusting", *flags, url=cluster.tls_url):
        eventually(lambda: "CERTIFICATE_VERIFY_FAILED" in cluster.log("distrusting"), within_s=60)
    assert "worker.registered" not in cluster.log("distrusting")


def test_settings_come_from_the_environment_and_an_agent_has_them_too(
    cluster: TlsCluster, user: LiveUser
):
    mine = cluster.authority.issue("host")
    variables = {
        "MITO_TLS_CA": str(cluster.authority.ca),
        "MITO_TLS_CERT": str(mine.cert),
        "MITO_TLS_KEY": str(mine.key),
    }
    uuid = user.submit("true", tags=("by-env",))
    flags = ("--independent", "--polling-interval", "100ms", "--tags", "by-env")
    with worker_program(user, "by-env", *flags, url=cluster.tls_url, **variables):
        assert user.ended(uuid, within_s=60)["outcome"] == "succeeded"
    lab = AgentLab(cluster)
    try:
        with lab.agent("tls", *trusting(cluster), *mine.flags, url=cluster.tls_url):
            lab.wait_for_managers(1)
    finally:
        lab.close()
