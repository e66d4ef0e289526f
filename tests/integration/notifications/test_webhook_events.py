"""What webhooks are told: exactly what happened, in the transaction in which it did."""

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from accounts.actors import SYSTEM
from accounts.models import User
from managers.models import NodeManager
from managers.services import wishes
from managers.services.expiry import expire_managers
from mitosis_protocol.enums import DeliveryState, ManagerState, NoticeKind, ShutdownOp
from notifications.models import FailureMinute, LogPosition, WebhookDelivery
from notifications.services.bursts import tell_bursts
from notifications.services.sending import send_due
from notifications.services.subscriptions import secret_for
from suites.models import TaskSuite
from suites.services.lifecycle import close_suite
from suites.services.sweeps import complete_drained
from tests.integration.managers.fleet import age, register
from tests.integration.notifications.receiver import Receiver, documented_check, subscribe
from tests.integration.suites.campaign import end_tasks, make_suite, make_user, submit

pytestmark = pytest.mark.django_db


def complete(suite: TaskSuite) -> None:
    end_tasks(submit(suite, 2))
    close_suite(actor=SYSTEM, suite=suite)
    assert complete_drained(batch=10) == [suite.pk]


def told() -> list[tuple[NoticeKind, dict[str, object]]]:
    rows = WebhookDelivery.objects.order_by("pk")
    return [(row.kind, row.data) for row in rows]


def test_a_completed_suite_is_told_once_signed_and_genuine(ada: User, receiver: Receiver) -> None:
    webhook = subscribe(ada, receiver.url)
    suite = make_suite(ada, name='<b>"sweep"</b>')
    complete(suite)
    assert complete_drained(batch=10) == []
    assert send_due() == 1
    assert send_due() == 0
    [request] = receiver.http.requests
    [body] = receiver.bodies
    assert request.method == "POST"
    assert request.path == "/hook"
    assert request.query == {"from": ["mitosis"]}
    assert body["type"] == "suite.completed"
    assert body["id"] == request.headers["webhook-id"]
    assert body["data"]["suite_uuid"] == str(suite.uuid)
    assert body["data"]["suite_name"] == '<b>"sweep"</b>'
    assert body["data"]["group_name"] == "ada"
    assert (body["data"]["total_tasks"], body["data"]["cancelled"]) == (2, 2)
    check, secret = documented_check(), secret_for(webhook)
    assert check(secret, request.headers, request.body)
    assert not check(secret, request.headers, request.body.replace(b"ada", b"eve"))
    assert not check(secret, {**request.headers, "webhook-id": "another"}, request.body)
    assert not check(secret, {**request.headers, "webhook-timestamp": "1700000000"}, request.body)
    webhook.secret_version += 1
    assert not check(secret_for(webhook), request.headers, request.body)
    [row] = WebhookDelivery.objects.all()
    assert (row.state, row.tries, row.last_status) == (DeliveryState.DELIVERED, 1, 204)


def test_only_subscribers_of_that_group_and_event_are_told(ada: User) -> None:
    bob = make_user("bob")
    subscribe(bob, "https://hooks.example/bob")
    subscribe(ada, "https://hooks.example/blocked", NoticeKind.SUITE_BLOCKED)
    off = subscribe(ada, "https://hooks.example/off")
    type(off).objects.filter(pk=off.pk).update(is_enabled=False)
    complete(make_suite(ada))
    assert told() == []


def test_what_is_rolled_back_was_never_told(ada: User) -> None:
    subscribe(ada, "https://hooks.example/ada")
    suite = make_suite(ada)
    with transaction.atomic():
        complete(suite)
        assert len(told()) == 1
        transaction.set_rollback(True)
    assert told() == []


def test_a_blocked_suite_is_told_with_its_reason(ada: User) -> None:
    subscribe(ada, "https://hooks.example/ada")
    suite = make_suite(ada)
    blocked = TaskSuite.objects.filter(pk=suite.pk)
    blocked.update(blocked_at=Now(), blocked_reason="three hosts failed")
    blocked.update(blocked_at=Now(), blocked_reason="three hosts failed")
    [(kind, data)] = told()
    assert kind is NoticeKind.SUITE_BLOCKED
    assert data["reason"] == "three hosts failed"


def test_a_silent_manager_is_told_and_one_that_was_sent_away_is_not(ada: User) -> None:
    subscribe(ada, "https://hooks.example/ada")
    silent, leaving = register(ada, "gpu", groups=["ada"]), register(ada, groups=["ada"])
    wishes.shut_down_manager(actor=SYSTEM, runner=leaving, op=ShutdownOp.GRACEFUL)
    age("runner_leases", "true", expires_at=1000)
    numbers = {"grace_s": 5, "lease_ttl_s": 120, "mass_expiry_ratio": 0.3}
    gone = expire_managers(**numbers, batch=10)
    assert set(gone) == {silent.pk, leaving.pk}
    assert expire_managers(**numbers, batch=10) == []
    assert not NodeManager.objects.exclude(state=ManagerState.OFFLINE).exists()
    [(kind, data)] = told()
    assert kind is NoticeKind.MANAGER_OFFLINE
    assert data["manager_uuid"] == str(silent.uuid)
    assert data["tags"] == ["gpu"]
    assert data["group_name"] == "ada"


@pytest.mark.django_db(transaction=True)
def test_a_quarantine_is_told_with_the_reason_of_its_own_transaction(ada: User) -> None:
    subscribe(ada, "https://hooks.example/ada")
    runner = register(ada, groups=["ada"])
    wishes.quarantine_manager(actor=SYSTEM, runner=runner, reason="its disk lies")
    wishes.quarantine_manager(actor=SYSTEM, runner=runner, reason="it still lies")
    [(kind, data)] = told()
    assert kind is NoticeKind.MANAGER_QUARANTINED
    assert data["reason"] == "its disk lies"
    assert data["manager_uuid"] == str(runner.uuid)


def fail_tasks(suite: TaskSuite, count: int, outcome: int = 1) -> None:
    """Ends as the commit statement logs them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO task_events (kind, outcome, group_id, suite_id)"
            " SELECT 8, %s, %s, %s FROM generate_series(1, %s)",
            [outcome, suite.group_id, suite.pk, count],
        )


@pytest.mark.django_db(transaction=True)
def test_a_burst_of_failures_is_told_once_per_window(ada: User) -> None:
    subscribe(ada, "https://hooks.example/ada")
    suite, calm = make_suite(ada, name="unlucky"), make_suite(ada)
    assert tell_bursts(failures=5, window_s=600) == 0
    fail_tasks(suite, 3)
    fail_tasks(suite, 100, outcome=0)
    fail_tasks(calm, 4)
    assert tell_bursts(failures=5, window_s=600) == 0
    assert tell_bursts(failures=5, window_s=600) == 0
    fail_tasks(suite, 2, outcome=2)
    # Counted once however often the job runs: three and two are five, not eight.
    assert FailureMinute.objects.filter(suite_id=suite.pk).count() >= 1
    assert tell_bursts(failures=5, window_s=600) == 1
    fail_tasks(suite, 9)
    assert tell_bursts(failures=5, window_s=600) == 0
    [(kind, data)] = told()
    assert kind is NoticeKind.FAILURE_BURST
    assert (data["suite_name"], data["failed"]) == ("unlucky", 5)
    age("webhook_deliveries", "true", created_at=601)
    assert tell_bursts(failures=5, window_s=600) == 1


@pytest.mark.django_db(transaction=True)
def test_what_happened_before_anybody_asked_is_no_burst(ada: User) -> None:
    suite = make_suite(ada)
    fail_tasks(suite, 50)
    assert tell_bursts(failures=5, window_s=600) == 0
    before = LogPosition.objects.get()
    subscribe(ada, "https://hooks.example/ada", NoticeKind.FAILURE_BURST)
    assert tell_bursts(failures=5, window_s=600) == 0
    assert int(LogPosition.objects.get().xid) >= int(before.xid)
    assert not FailureMinute.objects.exists()
