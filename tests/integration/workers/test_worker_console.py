"""The operator's page for workers."""

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import AuditEntry, User
from mitosis_protocol.enums import DesiredState
from runners.models import Runner
from tasks.models import ActiveTask
from tasks.services.claim import claim_for_worker_sync
from tests.integration.workers.people import new_task, new_user, new_worker
from workers.models import Worker

pytestmark = pytest.mark.django_db

PAGE = "admin:workers_worker_changelist"


@pytest.fixture
def owner(db: None) -> User:
    return new_user("ada")


@pytest.fixture
def console(db: None) -> Client:
    browser = Client()
    browser.force_login(new_user("root", admin=True))
    return browser


def run(console: Client, action: str, *workers: Runner) -> None:
    chosen = {"action": action, "_selected_action": [worker.pk for worker in workers]}
    assert console.post(reverse(PAGE), chosen).status_code == 302


def test_the_list_shows_life_lease_and_task_in_a_fixed_number_of_queries(
    console: Client, owner: User, django_assert_max_num_queries
):
    busy = new_worker(owner, tags=["gpu", "big"]).runner
    ref = new_task(owner)
    claim_for_worker_sync(runner_id=busy.pk)
    for _ in range(5):
        new_worker(owner)
    with django_assert_max_num_queries(8):
        page = console.get(reverse(PAGE)).content.decode()
    for text in (str(busy.uuid), str(ref.uuid), "active", "Normal", "big, gpu"):
        assert text in page


@pytest.mark.parametrize(("life", "count"), [("active", 1), ("stale", 1), ("inactive", 1)])
def test_workers_are_filtered_by_life(console: Client, owner: User, life: str, count: int):
    new_worker(owner)
    new_worker(owner, lease_ttl_s=0.000001)
    gone = new_worker(owner).runner
    Runner.objects.filter(pk=gone.pk).update(revoked_at=gone.created_at)
    page = console.get(reverse(PAGE), {"life": life})
    assert page.context["cl"].result_count == count


def test_one_worker_has_a_page_without_forms(console: Client, owner: User):
    runner = new_worker(owner).runner
    Worker.objects.filter(pk=runner.pk).update(metadata={"hostname": "<b>server</b>"})
    page = console.get(reverse("admin:workers_worker_change", args=[runner.pk]))
    assert page.status_code == 200
    assert "<b>server</b>" not in page.content.decode()
    assert "_save" not in page.content.decode()


def test_an_operator_shuts_workers_down_gracefully(console: Client, owner: User):
    idle, busy = new_worker(owner).runner, new_worker(owner).runner
    new_task(owner)
    claim_for_worker_sync(runner_id=busy.pk)
    run(console, "shut_down_gracefully", idle, busy)
    idle.refresh_from_db()
    busy.refresh_from_db()
    assert idle.revoked_at is not None
    assert (busy.revoked_at, busy.desired_state) == (None, DesiredState.SHUTDOWN)
    entries = AuditEntry.objects.filter(action="console.shutdown.graceful", actor_id="root")
    assert entries.count() == 2


def test_an_operator_shuts_workers_down_by_force(console: Client, owner: User):
    runner = new_worker(owner).runner
    new_task(owner)
    claim_for_worker_sync(runner_id=runner.pk)
    run(console, "shut_down_by_force", runner)
    runner.refresh_from_db()
    assert runner.revoked_at is not None
    assert ActiveTask.objects.get().runner_id is None
