"""The ceiling of a group: who sets it, and that nothing above it gets in by any way."""

from typing import Any

import pytest
from django.test import Client

from accounts.actors import SYSTEM
from accounts.models import AuditEntry, Group
from accounts.services.groups import set_priority_ceiling
from tasks.models import ActiveTask, ArchivedTask
from tests.integration.suites import suite_world
from tests.integration.tasks.api_world import ok, refused, submit, task
from tests.integration.workers.inprocess import Site
from tests.integration.workers.people import Caller, caller_of, new_user, new_worker

CEILING = 10
PATH = "/admin/groups/ada/priority-ceiling"


@pytest.fixture
def limited(db: None) -> Caller:
    """A user whose own group may ask for at most 10."""
    caller = caller_of(new_user("ada"))
    set_priority_ceiling(actor=SYSTEM, group_name="ada", ceiling=CEILING)
    return caller


def says_where(answer: Any, field: str = "priority", given: int = CEILING + 1) -> None:
    told = refused(answer, 400, f"{field}: {given} is above {CEILING}")
    assert "ada" in told["msg"]


def test_an_admin_sets_and_lifts_it_and_the_group_shows_it(db: None) -> None:
    ada, root = caller_of(new_user("ada")), caller_of(new_user("root", admin=True))
    assert ok(ada.call("GET", "/groups/ada"))["priority_ceiling"] is None
    assert ok(root.call("POST", PATH, {"priority_ceiling": 7})) == {"priority_ceiling": 7}
    assert ok(ada.call("GET", "/groups/ada"))["priority_ceiling"] == 7
    refused(ada.call("POST", PATH, {"priority_ceiling": 99}), 403)
    for odd in (2**31, -(2**31) - 1, "7", 7.5, True):
        refused(root.call("POST", PATH, {"priority_ceiling": odd}), 422, "priority_ceiling")
    refused(
        root.call("POST", "/admin/groups/nobody/priority-ceiling", {"priority_ceiling": 1}), 404
    )
    ok(root.call("POST", PATH, {"priority_ceiling": None}))
    assert Group.objects.get(name="ada").priority_ceiling is None
    entries = AuditEntry.objects.filter(action="group.priority_ceiling", object="ada")
    assert [entry.detail["ceiling"] for entry in entries.order_by("id")] == [7, None]


def test_a_submit_above_it_is_refused_and_one_at_it_is_taken(limited: Caller) -> None:
    says_where(limited.call("POST", "/tasks", task(priority=CEILING + 1)))
    submit(limited, priority=CEILING)
    set_priority_ceiling(actor=SYSTEM, group_name="ada", ceiling=None)
    submit(limited, priority=2**31 - 1)


def test_items_of_a_batch_are_refused_one_by_one(limited: Caller) -> None:
    body = {"tasks": [task(priority=CEILING + 1), task(priority=CEILING)]}
    high, fits = ok(limited.call("POST", "/tasks/submit", body))["results"]
    assert "priority: 11 is above 10" in high["Err"]["msg"]
    assert "Ok" in fits


def test_an_array_is_refused_for_its_template_or_any_row(limited: Caller) -> None:
    high = {"template": task(priority=CEILING + 1), "rows": [{}]}
    says_where(limited.call("POST", "/tasks/array", high))
    rows = [{"priority": CEILING}, {"priority": CEILING + 1}]
    says_where(
        limited.call("POST", "/tasks/array", {"template": task(), "rows": rows}),
        "rows[1].priority",
    )
    assert not ActiveTask.objects.exists()
    ok(limited.call("POST", "/tasks/array", {"template": task(), "rows": rows[:1]}), 201)


def test_a_task_cannot_be_changed_above_it(limited: Caller) -> None:
    uuid = submit(limited)
    says_where(limited.call("PUT", f"/tasks/{uuid}", {"priority": CEILING + 1}))
    ok(limited.call("PUT", f"/tasks/{uuid}", {"priority": CEILING}))
    assert ActiveTask.objects.get(uuid=uuid).priority == CEILING


def test_a_suite_is_neither_made_nor_changed_above_it(limited: Caller) -> None:
    says_where(limited.call("POST", "/suites", suite_world.spec(priority=CEILING + 1)))
    suite = suite_world.make(limited, priority=CEILING)
    path = f"/suites/{suite.uuid}"
    says_where(limited.call("PATCH", path, {"priority": CEILING + 1}))
    ok(limited.call("PATCH", path, {"priority": CEILING - 1}))
    suite.refresh_from_db()
    assert suite.priority == CEILING - 1


def test_a_rerun_comes_back_at_most_at_it(db: None) -> None:
    caller = caller_of(new_user("ada"))
    suite = suite_world.make(caller)
    uuid = suite_world.submit(caller, suite, priority=50)
    ok(caller.call("DELETE", f"/tasks/{uuid}"))
    assert ArchivedTask.objects.get(uuid=uuid).priority == 50
    set_priority_ceiling(actor=SYSTEM, group_name="ada", ceiling=CEILING)
    ok(suite_world.act(caller, suite, "rerun", {"outcomes": ["cancelled"]}), 201)
    assert ActiveTask.objects.get(suite_id=suite.pk).priority == CEILING


def test_a_worker_cannot_submit_a_downstream_task_above_it(transactional_db: None) -> None:
    site = Site()
    try:
        owner = new_user("ada")
        worker = site.worker(new_worker(owner).token)
        submit(caller_of(owner))
        attempt = worker.fetch()["id"]
        assert worker.report(attempt, "Finish").status_code == 200
        set_priority_ceiling(actor=SYSTEM, group_name="ada", ceiling=CEILING)
        high = worker.report(attempt, {"Submit": task(priority=CEILING + 1)})
        assert high.status_code == 400
        assert "priority: 11 is above 10" in high.json()["msg"]
        assert worker.report(attempt, {"Submit": task(priority=CEILING)}).status_code == 200
    finally:
        site.close()


def test_the_console_sets_it(limited: Caller) -> None:
    group = Group.objects.get(name="ada")
    browser = Client()
    browser.force_login(new_user("root", admin=True), "accounts.backends.ConsoleBackend")
    page = f"/admin/accounts/group/{group.pk}/change/"
    assert f'name="priority_ceiling" value="{CEILING}"'.encode() in browser.get(page).content
    form = {
        "state": group.state.value,
        "storage_quota": str(group.storage_quota),
        "priority_ceiling": "3",
        "memberships-TOTAL_FORMS": "0",
        "memberships-INITIAL_FORMS": "0",
    }
    assert browser.post(page, form).status_code == 302
    group.refresh_from_db()
    assert group.priority_ceiling == 3
