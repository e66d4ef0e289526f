"""Cancelling suites: what waits ends at once, what runs is told to stop, nothing is left behind."""

from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection

from accounts.actors import SYSTEM
from managers.enums import ReleaseReason
from managers.services.engagement import finish_engagement
from managers.services.scheduler import run_pass
from mitosis_protocol.enums import AssignmentState, Outcome
from mitosis_protocol.specs import TaskSpec
from suites.models import TaskSuite
from suites.selectors import suite_counts
from suites.services.lifecycle import cancel_suite_row
from tasks.dispatcher import Held
from tasks.models import ActiveTask, ArchivedTask
from tasks.new_task import NewTask
from tasks.services.report import finish_sync, submit_downstream_sync
from tasks.services.suite_cancel import cancel_suite, end_leftovers
from tests.integration.suites.campaign import counted, make_suite, make_user, submit, turn_back
from tests.integration.suites.hosts import Host
from tests.integration.suites.suite_world import act, make, ok
from tests.integration.suites.suite_world import submit as submit_one
from tests.integration.workers.people import Caller

pytestmark = pytest.mark.django_db(transaction=True)

BATCH = settings.MITOSIS.sweep_batch


def exact(suite: TaskSuite) -> None:
    counts = suite_counts([suite.pk])[suite.pk]
    assert (counts.total, counts.pending) == counted(suite)


def test_waiting_tasks_end_at_once_and_running_ones_are_told(ada: Caller) -> None:
    assert ada.user is not None
    suite = make(ada)
    for _ in range(5):
        submit_one(ada, suite)
    host = Host(ada.user)
    host.engage(suite)
    running = host.claim(2)
    answer = ok(act(ada, suite, "cancel", {"reason": "stop", "cancel_running_tasks": True}))
    assert answer == {
        "cancelled_task_count": 5,
        "cancelling_task_count": 2,
        "suite_state": "Cancelled",
    }
    assert ArchivedTask.objects.filter(outcome=Outcome.CANCELLED).count() == 3
    assert ActiveTask.objects.filter(cancel_requested_at__isnull=False).count() == 2
    exact(suite)
    # The decision stands, whatever the runner says afterwards.
    host.commit(running[0], exit_status=0)
    assert ArchivedTask.objects.get(uuid=running[0].uuid).outcome is Outcome.CANCELLED
    assert host.claim(5) == ()
    exact(suite)


def test_running_tasks_go_on_when_asked_to(ada: Caller) -> None:
    assert ada.user is not None
    suite = make(ada)
    submit_one(ada, suite)
    submit_one(ada, suite)
    host = Host(ada.user)
    host.engage(suite)
    [running] = host.claim(1)
    answer = ok(act(ada, suite, "cancel", {"cancel_running_tasks": False}))
    assert (answer["cancelled_task_count"], answer["cancelling_task_count"]) == (1, 0)
    host.commit(running, exit_status=0)
    assert ArchivedTask.objects.get(uuid=running.uuid).outcome is Outcome.SUCCEEDED
    assert counted(suite) == (2, 0)
    exact(suite)


def test_a_host_of_a_cancelled_suite_finishes_what_runs_and_then_cleans_up(ada: Caller) -> None:
    assert ada.user is not None
    suite = make(ada)
    submit_one(ada, suite)
    submit_one(ada, suite)
    host = Host(ada.user)
    row = host.engage(suite)
    [running] = host.claim(1)
    ok(act(ada, suite, "cancel", {"cancel_running_tasks": False}))
    assert run_pass().released == []
    row.refresh_from_db()
    assert (row.state, row.release_reason) == (AssignmentState.EXECUTING, None)
    assert host.claim(1) == (), "nothing new is handed out"
    host.commit(running, exit_status=0)
    assert run_pass().released == [(row.pk, ReleaseReason.CANCELLED)]
    row.refresh_from_db()
    assert row.state is AssignmentState.CLEANUP
    assert finish_engagement(manager_id=host.id, assignment_id=row.pk)
    assert ArchivedTask.objects.get(uuid=running.uuid).outcome is Outcome.SUCCEEDED


def test_a_host_told_to_stop_leaves_once_it_has_stopped(ada: Caller) -> None:
    assert ada.user is not None
    suite = make(ada)
    submit_one(ada, suite)
    host = Host(ada.user)
    row = host.engage(suite)
    [running] = host.claim(1)
    ok(act(ada, suite, "cancel", {"cancel_running_tasks": True}))
    assert run_pass().released == []
    host.commit(running, exit_status=15)
    assert run_pass().released == [(row.pk, ReleaseReason.CANCELLED)]


def test_dependents_are_cancelled_with_their_suite(ada: Caller) -> None:
    suite = make(ada)
    first = submit_one(ada, suite)
    submit_one(ada, suite, depends_on=[str(first)])
    assert ok(act(ada, suite, "cancel", {}))["cancelled_task_count"] == 2
    assert set(ArchivedTask.objects.values_list("outcome", flat=True)) == {Outcome.CANCELLED}


def test_a_canceller_that_died_after_its_decision_leaves_nothing_behind() -> None:
    suite = make_suite(make_user())
    submit(suite, 7)
    cancel_suite_row(actor=SYSTEM, suite=suite, reason="a test")
    assert end_leftovers(batch=BATCH) == 0, "the canceller may still be at it"
    turn_back(suite, cancelled_at=60)
    assert end_leftovers(batch=3) == 3
    assert end_leftovers(batch=BATCH) == 4
    assert end_leftovers(batch=BATCH) == 0
    assert counted(suite) == (7, 0)
    exact(suite)


def test_a_task_claimed_while_the_suite_was_cancelled_is_told_to_stop() -> None:
    user = make_user()
    suite, other = make_suite(user), make_suite(user)
    submit(suite, 2)
    submit(other, 1)
    host = Host(user)
    host.engage(suite)
    [before] = host.claim(1)
    cancel_suite_row(actor=SYSTEM, suite=suite, reason="a test")
    # A claim whose snapshot was older than the decision.
    TaskSuite.objects.filter(pk=suite.pk).update(state=0)
    [after] = host.claim(1)
    TaskSuite.objects.filter(pk=suite.pk).update(state=3)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE task_attempts SET claimed_at = claimed_at - interval '120 s' WHERE id = %s",
            [before.attempt_id],
        )
        cursor.execute(
            "UPDATE task_suites SET cancelled_at = cancelled_at - interval '60 s' WHERE id = %s",
            [suite.pk],
        )
    assert end_leftovers(batch=BATCH) == 1
    told = ActiveTask.objects.filter(cancel_requested_at__isnull=False)
    assert list(told.values_list("id", flat=True)) == [after.task_id]
    assert counted(other) == (1, 1)


def test_what_a_running_task_adds_to_a_cancelled_suite_ends_too() -> None:
    user = make_user()
    suite = make_suite(user)
    submit(suite)
    host = Host(user)
    host.engage(suite)
    [claimed] = host.claim(1)
    cancel_suite(actor=SYSTEM, suite=suite, reason="x", stop_running=False, batch=BATCH)
    finish_sync(Held(claimed.attempt_id, host.id))
    added = submit_downstream_sync(
        attempt_id=claimed.attempt_id,
        runner_id=host.id,
        group_id=suite.group_id,
        task=NewTask(spec=TaskSpec(args=["true"]), timeout_s=60),
        op_id=uuid4(),
    )
    host.commit(claimed)
    assert host.claim(1) == ()
    turn_back(suite, cancelled_at=60)
    assert end_leftovers(batch=BATCH) == 1
    assert ArchivedTask.objects.get(uuid=added.uuid).outcome is Outcome.CANCELLED
    assert ArchivedTask.objects.get(uuid=claimed.uuid).outcome is Outcome.SUCCEEDED
    exact(suite)


def test_the_sweep_finds_cancelled_suites_without_reading_the_queue() -> None:
    suite = make_suite(make_user())
    submit(suite, 500)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE active_tasks, task_suites")
        cursor.execute(
            "EXPLAIN WITH RECURSIVE busy AS ((SELECT t.suite_id FROM active_tasks t"
            " WHERE t.suite_id IS NOT NULL ORDER BY t.suite_id LIMIT 1) UNION ALL"
            " SELECT n.suite_id FROM busy b CROSS JOIN LATERAL (SELECT t.suite_id FROM active_tasks"
            " t WHERE t.suite_id > b.suite_id ORDER BY t.suite_id LIMIT 1) n) SELECT * FROM busy"
        )
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "active_tasks_suite" in plan
    assert "Seq Scan" not in plan


def test_a_repeated_claim_gives_the_same_tasks_and_a_released_engagement_none() -> None:
    user = make_user()
    suite = make_suite(user)
    submit(suite, 3)
    host = Host(user)
    row = host.engage(suite)
    claim_id = uuid4()
    first = host.claim(2, claim_id=claim_id)
    again = host.claim(2, claim_id=claim_id)
    assert [one.attempt_id for one in first] == [one.attempt_id for one in again]
    finish_engagement(manager_id=host.id, assignment_id=row.pk)
    assert host.claim(1) == ()


@pytest.mark.parametrize("cap", [1, 3])
def test_max_running_bounds_what_all_managers_hold_together(cap: int) -> None:
    user = make_user()
    suite = make_suite(user, max_running=cap)
    submit(suite, 10)
    host = Host(user)
    host.engage(suite)
    held = host.claim(10)
    assert len(held) == cap
    assert host.claim(10) == ()
    host.commit(held[0])
    assert len(host.claim(10)) == 1
