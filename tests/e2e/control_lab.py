"""A cluster with short leases, users with a tenant of their own, and direct workers for them."""

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e import schema_worker
from tests.e2e.cluster import Cluster
from tests.e2e.schema_worker import SchemaWorker
from tests.harness import TestServices
from tests.integration.tasks.live_client import LiveUser, eventually

# Leases of seconds, for the test that lets one run out; everybody else beats every second.
POLICY = "heartbeat_s=3,lease_ttl_s=12,reaper_grace_s=0.5,sweep_s=1,retry_backoff_s=0.2"
COMMAND = ("command",)
METRICS_TOKEN = "scrape-scrape-scrape-scrape-scrape"


def live_cluster(
    services: TestServices, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    environment = {"MITOSIS_POLICY": POLICY, "METRICS_TOKEN": METRICS_TOKEN}
    with Cluster(tmp_path_factory.mktemp("control"), environment=environment) as running:
        yield running


def admin_user(live: Cluster) -> Iterator[LiveUser]:
    user = LiveUser(live, *live.admin)
    yield user
    user.http.close()


class Lab:
    """A user, its group, and direct workers for it."""

    def __init__(self, live: Cluster, user: LiveUser) -> None:
        self.live = live
        self.user = user

    def enrol(self, **changes: Any) -> tuple[str, str]:
        body = {"tags": [], "labels": [], "groups": [], "kind": "direct", **changes}
        made = self.user.post("/workers", body)
        return made["token"], made["worker_id"]

    @asynccontextmanager
    async def worker(
        self,
        node_types: tuple[str, ...] = COMMAND,
        *,
        enrolled: tuple[str, str] | None = None,
        parallel: int = 1,
        **register: Any,
    ) -> AsyncIterator[SchemaWorker]:
        """A worker that is registered and beats."""
        token, worker_id = enrolled or self.enrol()
        async with schema_worker.session(self.live.url, token, self.user.name, worker_id) as worker:
            assert (await worker.handshake())["type"] == "ack"
            assert (await worker.register(node_types, parallel, **register))["type"] == "ack"
            worker.keep_beating()
            yield worker

    def info(self, uuid: str) -> dict[str, Any]:
        answer = self.user.http.get(f"/tasks/{uuid}").json()
        return {**answer["info"], "report": answer["report"]}

    def ends(self, uuid: str, within_s: float = 30) -> dict[str, Any]:
        return eventually(
            lambda: (found := self.info(uuid))["outcome"] and found, within_s=within_s
        )

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.live.database_url) as connection:
            return connection.execute(sql.encode(), values).fetchall()

    def counted(self, name: str, **labels: str | None) -> float:
        """One number of `/metrics`, this tenant's unless it has none (`tenant=None`)."""
        page = httpx2.get(
            f"{self.live.url}/metrics", headers={"Authorization": f"Bearer {METRICS_TOKEN}"}
        )
        assert page.status_code == 200, page.text
        asked = {"tenant": self.user.name, **labels}
        wanted = {label: value for label, value in asked.items() if value is not None}
        return sum(
            sample.value
            for family in text_string_to_metric_families(page.text)
            for sample in family.samples
            if sample.name == name and wanted.items() <= sample.labels.items()
        )

    def runs_of(self, uuid: str) -> int:
        return int(self.info(uuid)["attempt"])

    def audit(self, action: str) -> list[tuple[str, dict[str, Any]]]:
        return self.query(
            "SELECT outcome, detail FROM audit_log WHERE action = %s"
            " AND detail->>'tenant' = %s ORDER BY id",
            action,
            self.user.name,
        )


def lab_of_one(live: Cluster, admin: LiveUser) -> Iterator[Lab]:
    name, password = f"u{uuid4().hex[:10]}", "correct horse battery"
    digest = list(hashlib.md5(password.encode()).digest())
    admin.post("/admin/users", {"username": name, "md5_password": digest, "admin": False})
    user = LiveUser(live, name, password)
    yield Lab(live, user)
    user.http.close()
