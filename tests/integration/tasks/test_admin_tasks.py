"""The console's pages for tasks, as an operator clicks them, also with very many rows."""

import time
from uuid import uuid4

import pytest
import redis
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.models import AuditEntry
from tasks.models import (
    ActiveTask,
    ArchivedTask,
    Artifact,
    Attachment,
    TaskAttempt,
    TaskEvent,
    TaskExecutionFailure,
)
from tests.integration.tasks.api_world import Caller, TeamWorker, allowed_s, ok, submit, task

pytestmark = pytest.mark.django_db

MODELS = (
    ActiveTask,
    ArchivedTask,
    Artifact,
    Attachment,
    TaskAttempt,
    TaskEvent,
    TaskExecutionFailure,
)


@pytest.fixture
def console(root: Caller, clean_redis: redis.Redis) -> Client:
    browser = Client()
    assert root.user is not None
    browser.force_login(root.user)
    return browser


def changelist(console: Client, model: type, **query: str) -> str:
    url = reverse(f"admin:tasks_{model.__name__.lower()}_changelist")
    answer = console.get(url, query)
    assert answer.status_code == 200, answer
    return answer.content.decode()


@pytest.fixture
def story(ada: Caller, worker: TeamWorker) -> dict[str, object]:
    """One task that ended, one that waits, an archive and a file."""
    ended = submit(ada, labels=["done"], priority=1)
    worker.run()
    secret = {"args": ["true"], "envs": {"API_KEY": "hunter2-canary"}}
    waiting = submit(ada, labels=["todo"], task_spec=secret)
    body = {"content_type": "result", "content_length": 5}
    ok(ada.call("POST", f"/tasks/{ended}/artifacts", body))
    ok(ada.call("POST", "/groups/ada/attachments", {"key": "a/b", "content_length": 5}))
    return {"ended": ended, "waiting": waiting}


@pytest.mark.parametrize("model", MODELS)
def test_every_page_opens_and_nothing_can_be_changed_by_hand(
    console: Client, story: dict[str, object], model: type
) -> None:
    changelist(console, model)
    changelist(console, model, q=str(story["ended"]))
    changelist(console, model, q="ada")
    changelist(console, model, q="\x00")
    page = admin.site._registry[model]  # type: ignore[index]
    request = console.get("/admin/").wsgi_request
    assert not page.has_add_permission(request)
    assert not page.has_change_permission(request)
    assert not page.has_delete_permission(request)


@pytest.mark.parametrize("model", [ActiveTask, ArchivedTask, Artifact, Attachment, TaskAttempt])
def test_one_row_can_be_looked_at(console: Client, story: dict[str, object], model: type) -> None:
    row = model.objects.first()  # type: ignore[attr-defined]
    url = reverse(f"admin:tasks_{model.__name__.lower()}_change", args=[row.pk])
    assert console.get(url).status_code == 200


def test_search_finds_uuids_labels_and_groups(console: Client, story: dict[str, object]) -> None:
    waiting, ended = str(story["waiting"]), str(story["ended"])
    assert waiting in changelist(console, ActiveTask, q=waiting)
    assert waiting in changelist(console, ActiveTask, q="todo")
    assert waiting in changelist(console, ActiveTask, q="ada")
    for nothing in (str(uuid4()), "tod", "%", "nobody"):
        assert waiting not in changelist(console, ActiveTask, q=nothing)
    assert ended in changelist(console, ArchivedTask, q="done")
    assert "a/b" in changelist(console, Attachment, q="ada/a/b")
    assert "a/b</a>" not in changelist(console, Attachment, q="ada/a")


def test_filters_narrow(console: Client, story: dict[str, object]) -> None:
    waiting = str(story["waiting"])
    assert waiting in changelist(console, ActiveTask, state__exact="1")
    assert waiting not in changelist(console, ActiveTask, state__exact="0")


def test_environment_values_are_masked(console: Client, story: dict[str, object]) -> None:
    row = ActiveTask.objects.get(uuid=story["waiting"])
    page = console.get(reverse("admin:tasks_activetask_change", args=[row.pk])).content.decode()
    assert "hunter2-canary" not in page
    assert "***" in page


def test_cancel_is_the_services_cancel_and_leaves_a_trace(
    console: Client, ada: Caller, worker: TeamWorker
) -> None:
    running, waiting = submit(ada, priority=1), submit(ada)
    worker.claim()
    chosen = list(ActiveTask.objects.values_list("pk", flat=True))
    url = reverse("admin:tasks_activetask_changelist")
    answer = console.post(url, {"action": "cancel", "_selected_action": chosen}, follow=True)
    assert b"Cancel: 2 done" in answer.content
    assert ActiveTask.objects.get(uuid=running).cancel_requested_at is not None
    assert ArchivedTask.objects.get(uuid=waiting).outcome.value == "cancelled"
    entries = AuditEntry.objects.filter(action="console.cancel", actor_id="root")
    assert entries.count() == 2


@pytest.mark.alone
def test_a_hundred_thousand_rows_are_no_burden(console: Client, ada: Caller) -> None:
    rows = [{"params": {"n": n}} for n in range(100_000)]
    template = task(labels=["n:{n}"])
    made = ok(ada.call("POST", "/tasks/array", {"template": template, "rows": rows}), 201)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE active_tasks, task_events")
    for model, query in (
        (ActiveTask, {}),
        (ActiveTask, {"p": "50"}),
        (ActiveTask, {"q": made["uuids"][70_000]}),
        (ActiveTask, {"q": "n:4711"}),
        (TaskEvent, {}),
        (TaskEvent, {"q": made["uuids"][70_000]}),
    ):
        started = time.monotonic()
        with CaptureQueriesContext(connection) as captured:
            changelist(console, model, **query)
        assert time.monotonic() - started < allowed_s(2), query
        counts = [found["sql"] for found in captured if "COUNT(" in found["sql"]]
        assert all("LIMIT 10000" in sql for sql in counts), counts


def test_the_event_page_reads_its_index_backwards(console: Client, ada: Caller) -> None:
    ok(ada.call("POST", "/tasks/array", {"template": task(), "rows": [{}] * 5000}), 201)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE task_events")
        with CaptureQueriesContext(connection) as captured:
            changelist(console, TaskEvent)
        [listing] = [q["sql"] for q in captured if "ORDER BY" in q["sql"] and "xid" in q["sql"]]
        cursor.execute(f"EXPLAIN {listing}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "task_events_pkey" in plan, plan
