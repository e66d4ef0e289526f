"""The database is away, or we have a bug: what existing workers are told meanwhile."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection

from accounts.models import User
from core.errors import DatabaseUnavailable
from mitosis_protocol.enums import Outcome
from tasks.models import ActiveTask, ArchivedTask
from tests.integration.workers.inprocess import Site, WorkerSide, served_database
from tests.integration.workers.people import new_task, new_user, new_worker
from workers.api import beats, duty, endpoint, reports

NOWHERE = "postgresql://nobody@127.0.0.1:9/nothing"


@pytest.fixture
def lost_site(transactional_db: None) -> Iterator[Site]:
    """A coordinator whose pool finds no server."""
    served = Site(NOWHERE)
    yield served
    served.close()


def test_without_a_database_fetch_and_heartbeat_say_null(
    lost_site: Site,
):
    worker = lost_site.worker(new_worker(new_user("ada")).token)
    for method, path in (("GET", "/workers/tasks"), ("POST", "/workers/heartbeat")):
        answer = worker.call(method, path)
        assert (answer.status_code, answer.content) == (200, b"null")


def test_without_a_database_a_report_is_held_and_then_refused_as_retryable(
    lost_site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(endpoint, "HOLD_S", 0.5)
    worker = lost_site.worker(new_worker(new_user("ada")).token)
    answer = worker.commit(1)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


def test_a_wrong_token_is_refused_even_without_a_database(lost_site: Site):
    assert lost_site.worker("nonsense").call("GET", "/workers/tasks").status_code == 401


@pytest.mark.parametrize(
    ("module", "name", "call"),
    [
        (duty, "_claim", ("GET", "/workers/tasks")),
        (beats, "record_beat", ("POST", "/workers/heartbeat")),
    ],
)
def test_a_bug_of_ours_ends_no_worker(
    worker: WorkerSide, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, call: Any
):
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(module, name, broken)
    answer = worker.call(*call)
    assert (answer.status_code, answer.content) == (200, b"null")


def test_dead_connections_of_both_pools_cost_no_report(owner: User, worker: WorkerSide):
    new_task(owner)
    offer = worker.fetch()
    for size in (1, 2, 3):
        op = {"Upload": {"content_type": "result", "content_length": size}}
        _cut_all_connections(of_whom="%")
        assert worker.report(offer["id"], op).status_code == 200
    connection.close_pool()  # of Django: nobody used it here, so all of its connections are dead


def test_a_report_whose_sender_cannot_be_proven_yet_is_held_too(
    site: Site, owner: User, worker: WorkerSide, monkeypatch: pytest.MonkeyPatch
):
    real, calls = endpoint.authenticate_bearer, []

    async def away_once(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 1:
            raise DatabaseUnavailable
        return await real(*given)

    new_task(owner)
    offer = worker.fetch()
    monkeypatch.setattr(endpoint, "authenticate_bearer", away_once)
    assert worker.commit(offer["id"]).status_code == 200
    assert len(calls) == 2


def test_connections_that_died_cost_no_report(owner: User, worker: WorkerSide):
    """As after a restart: every pooled connection is dead, the server is back."""
    for _ in range(3):
        new_task(owner)
        offer = worker.fetch()
        _cut_all_connections()
        assert worker.commit(offer["id"]).status_code == 200
    assert ArchivedTask.objects.filter(outcome=Outcome.SUCCEEDED).count() == 3


def test_a_submission_repeated_by_us_makes_one_task(
    owner: User, worker: WorkerSide, monkeypatch: pytest.MonkeyPatch
):
    """The answer of the statement got lost; our own repetition must find its task."""
    real = reports.submit_downstream
    calls: list[object] = []

    async def forgetful(**given: Any) -> Any:
        answer = await real(**given)
        calls.append(given["op_id"])
        if len(calls) == 1:
            raise DatabaseUnavailable(outcome_unknown=True)
        return answer

    monkeypatch.setattr(reports, "submit_downstream", forgetful)
    new_task(owner)
    offer = worker.fetch()
    worker.report(offer["id"], "Finish")
    downstream = {
        "group_name": "ada",
        "tags": [],
        "labels": [],
        "timeout": "1m",
        "priority": 0,
        "task_spec": {"args": ["true"]},
    }
    assert worker.report(offer["id"], {"Submit": downstream}).status_code == 200
    assert len(calls) == 2
    assert calls[0] == calls[1]
    assert ActiveTask.objects.filter(upstream_task_uuid=offer["uuid"]).count() == 1


def _cut_all_connections(of_whom: str = "mitosis-pool") -> None:
    connection.close()
    with psycopg.connect(served_database(), autocommit=True) as cutter:
        cutter.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s"
            " AND datname = current_database() AND pid <> pg_backend_pid()",
            [of_whom],
        )
