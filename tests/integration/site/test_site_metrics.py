"""`/metrics`: who may read it, what it says, and that dashboard and alerts name what exists."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from psycopg_pool import PoolTimeout

from accounts.models import User
from accounts.services.sessions import issue_user_token
from managers.models import NodeManager
from mitosis_protocol.enums import ManagerState
from mitosis_site.metrics.managers import MAX_MANAGERS
from mitosis_site.metrics.queue import bounded
from tests.integration.managers.fleet import connect, register
from tests.integration.suites.campaign import make_suite, make_user, submit
from tests.integration.workers.people import new_task
from tests.promtool_setup import find_promtool

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "docker" / "prometheus"
TOKEN = "a-token-for-the-scraper"
SAMPLE = {
    "active_workers": 2,
    "families": {
        "system": {"cpu_usage_percent": 50, "memory_used_bytes": 10, "disk_used_bytes": "full"},
        "worker_pool": {"workers_active": 2, "workers_executing": 1},
        "ipc": {"fetch_p99_latency_us": 250},
    },
}


@pytest.fixture(autouse=True)
def _open(settings: Any) -> None:
    settings.METRICS_TOKEN = TOKEN
    settings.MITOSIS = replace(settings.MITOSIS, scrape_cache_s=1e-9)


def scrape(token: str | None = TOKEN) -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return Client().get("/metrics", headers=headers)


def samples() -> dict[str, float]:
    answer = scrape()
    assert answer.status_code == 200, answer.content
    return {
        f"{one.name}{{{','.join(f'{k}={v}' for k, v in sorted(one.labels.items()))}}}": one.value
        for family in text_string_to_metric_families(answer.content.decode())
        for one in family.samples
    }


def test_only_staff_and_the_scraper_may_read_it(settings: Any) -> None:
    staff, user = make_user("root", admin=True), make_user("ada")
    assert scrape().status_code == 200
    assert scrape(issue_user_token(staff)).status_code == 200
    assert scrape(issue_user_token(user)).status_code == 403
    assert scrape(TOKEN[:-1]).status_code == 401
    # A loopback address, which the test client has, opens nothing.
    assert scrape(None).status_code == 400
    settings.METRICS_TOKEN = ""
    assert scrape("").status_code in {400, 401}
    assert scrape(TOKEN).status_code == 401


def test_staff_may_read_it_with_their_session() -> None:
    client = Client()
    client.force_login(make_user("root", admin=True))
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert answer.headers["Cache-Control"] == "no-store"


def queue_of(user: User) -> None:
    suite = make_suite(user)  # four workers a host
    submit(suite, 10)
    submit(make_suite(user), 1)
    paused = make_suite(user)
    submit(paused, 5)
    type(paused).objects.filter(pk=paused.pk).update(paused_at="2026-01-01T00:00:00Z")
    for _ in range(3):
        new_task(user)


def test_queue_and_backlog_are_what_the_database_holds() -> None:
    queue_of(make_user("ada"))
    found = samples()
    assert found["mitosis_tasks{phase=ready}"] == 19
    assert found["mitosis_tasks{phase=running}"] == 0
    assert found["mitosis_queue_depth{group=ada}"] == 19
    # A paused suite has a queue and no backlog: no host would help.
    assert found["mitosis_backlog_tasks{group=ada,runner=manager}"] == 11
    assert found["mitosis_backlog_tasks{group=ada,runner=worker}"] == 3
    assert found["mitosis_backlog_hosts{group=ada}"] == 3 + 1
    assert found["mitosis_suites{state=Open}"] == 3
    assert found["mitosis_suites_paused{}"] == 1
    assert found["mitosis_suites_unserved{}"] == 2
    assert found["mitosis_database_up{}"] == 1


def test_managers_are_counted_and_a_liar_harms_nobody() -> None:
    ada = make_user("ada")
    honest, liar, gone = register(ada), register(ada), register(ada)
    connect(honest, liar)
    NodeManager.objects.filter(pk=honest.pk).update(metrics=SAMPLE, state=ManagerState.EXECUTING)
    lies = {"families": {"worker_pool": {"workers_active": "many"}, "system": [1]}, "ipc": 7}
    NodeManager.objects.filter(pk=liar.pk).update(metrics=lies)
    NodeManager.objects.filter(pk=gone.pk).update(metrics=SAMPLE, state=ManagerState.OFFLINE)
    found = samples()
    assert found["mitosis_managers{state=Idle}"] == 1
    assert found["mitosis_managers{state=Executing}"] == 1
    assert found["mitosis_managers{state=Offline}"] == 1
    assert found["mitosis_managers_connected{}"] == 2
    assert found["mitosis_workers_active{}"] == 2  # the offline one's are gone
    assert found[f"mitosis_manager_cpu_usage_ratio{{manager={honest.uuid}}}"] == 0.5
    assert found[f"mitosis_manager_ipc_fetch_p99_seconds{{manager={honest.uuid}}}"] == 0.00025
    assert f"mitosis_manager_disk_used_bytes{{manager={honest.uuid}}}" not in found
    assert f"mitosis_manager_cpu_usage_ratio{{manager={liar.uuid}}}" not in found
    assert f"mitosis_manager_cpu_usage_ratio{{manager={gone.uuid}}}" not in found


def test_labels_from_outside_are_bounded() -> None:
    rows = [(f"g{number}", float(number)) for number in range(150)]
    kept = bounded(rows, limit=100)
    assert len(kept) == 101
    assert sum(kept.values()) == sum(value for _, value in rows)
    assert "g149" in kept
    assert "g0" not in kept
    assert MAX_MANAGERS <= 200


def test_requests_are_counted_by_route_and_never_by_path() -> None:
    Client().get("/healthz")
    Client().get("/no/such/path")
    page = scrape().content.decode()
    assert 'mitosis_http_request_seconds_count{code="2xx",method="GET",route="healthz"}' in page
    assert "such" not in page


@pytest.mark.parametrize("error", [OperationalError("gone"), PoolTimeout("gone")])
def test_a_database_that_is_away_is_a_gauge(error: Exception) -> None:
    def refuse(*_: Any) -> Any:
        raise error

    with connection.execute_wrapper(refuse):
        page = scrape().content.decode()
    assert "mitosis_database_up 0.0" in page
    assert "mitosis_http_request_seconds" in page
    assert "mitosis_tasks{" not in page


def test_one_read_serves_the_scrapes_of_a_moment(settings: Any) -> None:
    settings.MITOSIS = replace(settings.MITOSIS, scrape_cache_s=1e-9)
    scrape()
    settings.MITOSIS = replace(settings.MITOSIS, scrape_cache_s=3600)
    statements: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        assert scrape().status_code == 200
    assert statements == []


def names_in(expression: str) -> Iterator[str]:
    """Metric names of an expression: words that are followed by a brace, a bracket or nothing."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    bare = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", " ", bare)
    bare = re.sub(r"\{[^}]*\}", " ", bare)
    bare = re.sub(r"\[[^\]]*\]", " ", bare)
    for word in re.findall(r"[a-z_][a-z0-9_]*(?![a-z0-9_]*\s*\()", bare, re.IGNORECASE):
        if word not in {"and", "or", "unless", "bool", "e9"}:
            yield word


def test_dashboard_and_alerts_name_only_what_exists() -> None:
    dashboard = json.loads((ROOT / "docker" / "grafana" / "mitosis.json").read_text())
    expressions = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])
    ]
    rules = (RULES / "mitosis.rules.yml").read_text()
    expressions += re.findall(r"^\s+expr: (.+)$", rules, re.MULTILINE)
    assert len(expressions) > 50
    used = {name for expression in expressions for name in names_in(expression)}
    page = scrape().content.decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    known = {"up"} | set(types)
    for name, kind in types.items():
        if kind == "histogram":
            known |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"}
    assert used - known == set()
    assert len(used) > 40


def test_every_gauge_is_on_the_dashboard_or_is_documented() -> None:
    documented = (ROOT / "docs" / "operations.md").read_text()
    dashboard = (ROOT / "docker" / "grafana" / "mitosis.json").read_text()
    names = re.findall(r"^# TYPE (\S+) ", scrape().content.decode(), re.MULTILINE)
    ours = [name for name in names if name.startswith(("mitosis_", "ws_", "cmd_", "pkg_"))]
    assert [name for name in ours if name not in documented and name not in dashboard] == []


def test_the_alert_rules_do_what_they_say() -> None:
    promtool = find_promtool()
    if promtool is None:
        pytest.skip("no promtool: python -m tests.promtool_setup fetches it on Debian")
    for command in (
        ["check", "rules", "mitosis.rules.yml"],
        ["test", "rules", "mitosis.rules.test.yml"],
        ["check", "config", "--syntax-only", "prometheus.yml"],
    ):
        done = subprocess.run(
            [promtool, *command], cwd=RULES, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
