"""The admin site beside the console: pages of tasks by key, histories from the audit log, links."""

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from core import admin as core_admin
from tasks.models import ActiveTask
from tests.integration.console.world import World
from tests.integration.suites.campaign import submit

TASKS = "/admin/tasks/activetask/"


def task_ids(page: str) -> list[int]:
    return [int(pk) for pk in re.findall(r'name="_selected_action" value="(\d+)"', page)]


def walk(client: Client, query: str) -> list[int]:
    """All rows, page by page, by the links on them."""
    found: list[int] = []
    while True:
        page = client.get(f"{TASKS}{query}").content.decode()
        found += task_ids(page)
        older = re.search(r'<a href="(\?[^"]+)">Older</a>', page)
        if older is None:
            return found
        query = older[1].replace("&amp;", "&")


def test_pages_of_tasks_follow_the_key_and_count_nothing(world: World) -> None:
    submit(world.lab.suite, 230)
    client = world.client("staff")
    with CaptureQueriesContext(connection) as queries:
        found = walk(client, "")
    expected = list(ActiveTask.objects.order_by("-pk").values_list("pk", flat=True))
    assert found == expected
    assert not [one["sql"] for one in queries if "COUNT(" in one["sql"].upper()]
    assert not [one["sql"] for one in queries if "OFFSET" in one["sql"].upper()]


def test_a_filter_reads_a_bounded_stretch_and_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit(world.lab.suite, 1)
    submit(world.lab.suite, 60)
    monkeypatch.setattr(core_admin, "MAX_STRETCH", 20)
    ActiveTask.objects.exclude(pk__in=first).update(state=0, waiting_on=1)
    client = world.client("staff")
    page = client.get(f"{TASKS}?state__exact=1").content.decode()
    assert task_ids(page) == []
    assert "Older" in page
    assert first[0] in walk(client, "?state__exact=1")


def test_a_filter_passes_over_keys_that_are_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has ended has left the table, and the gap may be of millions."""
    first = submit(world.lab.suite, 1)
    with connection.cursor() as cursor:
        sequence = "pg_get_serial_sequence('active_tasks', 'id')"
        cursor.execute(f"SELECT setval({sequence}, nextval({sequence}) + 1000000)")
    submit(world.lab.suite, 30)
    monkeypatch.setattr(core_admin, "MAX_STRETCH", 20)
    ActiveTask.objects.exclude(pk__in=first).update(state=0, waiting_on=1)
    client = world.client("staff")
    with CaptureQueriesContext(connection) as queries:
        assert walk(client, "?state__exact=1") == first
    assert len(queries) < 100


def test_the_history_of_a_suite_is_what_the_audit_log_says(world: World) -> None:
    suite = world.lab.suite
    world.client("writer").post(f"/console/suites/{suite.uuid}/do/pause", {"confirmed": "yes"})
    staff = world.client("staff")
    page = staff.get(reverse("admin:suites_tasksuite_history", args=[suite.pk])).content.decode()
    assert "suite.pause" in page
    assert "user bob" in page
    assert "<script>window" not in page
    absent = staff.get(reverse("admin:suites_tasksuite_history", args=[0]))
    assert absent.status_code == 404
    manager = world.lab.manager
    url = f"/console/managers/{manager.uuid}/do/drain"
    world.client("admin").post(url, {"confirmed": "yes"})
    history = reverse("admin:managers_nodemanager_history", args=[manager.pk])
    assert "manager.wish" in staff.get(history).content.decode()


def test_objects_in_the_admin_lead_to_their_live_pages(world: World) -> None:
    staff, lab = world.client("staff"), world.lab
    task = ActiveTask.objects.get(uuid=lab.waiting)
    for name, pk, target in (
        ("suites_tasksuite", lab.suite.pk, f"/console/suites/{lab.suite.uuid}"),
        ("tasks_activetask", task.pk, f"/console/tasks/{lab.waiting}"),
        ("managers_nodemanager", lab.manager.pk, f"/console/managers/{lab.manager.uuid}"),
    ):
        page = staff.get(reverse(f"admin:{name}_change", args=[pk])).content.decode()
        assert f'href="{target}"' in page, name
    assert 'href="/console/"' in staff.get("/admin/").content.decode()
