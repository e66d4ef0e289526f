"""`explain` over HTTP: never empty, right, and right again after the world has changed."""

from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from accounts.actors import SYSTEM
from accounts.models import Group
from managers.enums import PreparationTrouble
from managers.models import NodeManager, SuiteAssignment
from managers.services.engagement import Failure, begin_preparation, fail_preparation
from managers.services.scheduler import run_pass
from managers.services.wishes import drain_manager, quarantine_manager, release_manager
from mitosis_protocol.enums import ConnState, ConsentState, Role
from runners.models import GroupRunner
from suites.models import TaskSuite
from tests.integration.suites.hosts import Host
from tests.integration.suites.suite_world import act, make, ok, refused, submit, task
from tests.integration.workers.people import Caller, new_worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def host(ada: Caller) -> Host:
    assert ada.user is not None
    return Host(ada.user, "gpu")


def explain(caller: Caller, suite: TaskSuite) -> Any:
    return ok(caller.call("GET", f"/suites/{suite.uuid}/explain"))


def codes(answer: Any) -> list[str]:
    """What stands in the way: of the thing itself, then of the nearest runner."""
    runners = [*answer["managers"], *answer["workers"]][:1]
    return [one["code"] for part in (answer, *runners) for one in part["obstacles"]]


def test_a_suite_without_managers_says_so_and_what_to_do(ada: Caller) -> None:
    suite = make(ada)
    submit(ada, suite)
    answer = explain(ada, suite)
    assert codes(answer) == ["no_runners"]
    assert answer["smallest_change"] == ["register a manager for the group ada"]
    assert not answer["can_run"]
    assert "no manager serves the group ada" in answer["summary"]


def test_the_answer_follows_tags_roles_leases_and_quarantine(ada: Caller, host: Host) -> None:
    suite = make(ada, tags=["gpu", "arm"])
    submit(ada, suite)
    first = explain(ada, suite)
    assert codes(first) == ["tags_missing"]
    assert "arm" in first["managers"][0]["obstacles"][0]["text"]
    assert first["smallest_change"] == [f"add arm to manager {host.uuid}"]
    host.set(tags=["arm", "gpu"])
    assert explain(ada, suite)["can_run"]

    role = GroupRunner.objects.filter(runner_id=host.id)
    role.update(role=Role.READ)
    assert codes(explain(ada, suite)) == ["role_too_low"]
    role.update(role=Role.WRITE, consent=ConsentState.PENDING)
    assert codes(explain(ada, suite)) == ["consent_pending"]
    role.update(consent=ConsentState.ACCEPTED)

    quarantine_manager(actor=SYSTEM, runner=host.runner, reason="3 tasks failed here")
    answer = explain(ada, suite)
    assert codes(answer) == ["quarantined"]
    assert "3 tasks failed here" in answer["summary"]
    release_manager(actor=SYSTEM, runner=host.runner)
    drain_manager(actor=SYSTEM, runner=host.runner, reason="new fans")
    assert codes(explain(ada, suite)) == ["draining"]
    host.set(desired_state=0)

    host.set(conn_state=ConnState.DISCONNECTED)
    assert codes(explain(ada, suite)) == ["disconnected"]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runner_leases SET expires_at = expires_at - interval '1 hour'")
    answer = explain(ada, suite)
    assert codes(answer) == ["offline"]
    assert "since 20" in answer["summary"]


def test_a_lease_of_another_suite_is_named_with_its_end(ada: Caller, host: Host) -> None:
    first, second = make(ada, priority=5), make(ada)
    submit(ada, first)
    submit(ada, second)
    host.engage(first)
    answer = explain(ada, second)
    assert codes(answer) == ["leased"]
    assert str(first.uuid) in answer["summary"]
    assert "until 20" in answer["summary"]
    working = explain(ada, first)
    assert (working["can_run"], working["managers"][0]["verdict"]) == (True, "working")


def test_a_foreign_suite_that_holds_the_lease_stays_unnamed(
    ada: Caller, eve: Caller, host: Host
) -> None:
    GroupRunner.objects.create(
        group=Group.objects.get(name="eve"),
        runner=host.runner,
        role=Role.WRITE,
        consent=ConsentState.ACCEPTED,
    )
    taken = make(ada)
    submit(ada, taken)
    host.engage(taken)
    suite = make(eve, "eve")
    submit(eve, suite)
    answer = explain(eve, suite)
    assert codes(answer) == ["leased"]
    assert "another suite" in answer["summary"]
    assert str(taken.uuid) not in str(answer)


def test_managers_of_other_groups_are_not_mentioned(ada: Caller, eve: Caller, host: Host) -> None:
    suite = make(eve, "eve")
    submit(eve, suite)
    answer = explain(eve, suite)
    assert codes(answer) == ["no_runners"]
    assert str(host.uuid) not in str(answer)


def test_who_asks_to_serve_a_group_is_shown_to_its_admins_only(
    ada: Caller, ron: Caller, eve: Caller, lab: Group
) -> None:
    assert eve.user is not None
    host = Host(eve.user)
    GroupRunner.objects.create(group=lab, runner=host.runner, role=Role.WRITE)
    suite = make(ada, "lab")
    submit(ada, suite)
    assert codes(explain(ada, suite)) == ["consent_pending"]
    assert codes(explain(ron, suite)) == ["no_runners"]
    assert str(host.uuid) not in str(explain(ron, suite))


def test_a_manager_of_another_group_of_the_caller_lacks_the_role(
    ada: Caller, lab: Group, host: Host
) -> None:
    suite = make(ada, "lab")
    submit(ada, suite)
    answer = explain(ada, suite)
    assert codes(answer) == ["no_role"]
    assert answer["smallest_change"] == [f"give the group lab Write on manager {host.uuid}"]


def test_pause_block_cancel_and_emptiness_are_the_suites_own_reasons(
    ada: Caller, host: Host
) -> None:
    suite = make(ada)
    assert codes(explain(ada, suite)) == ["no_tasks"]
    submit(ada, suite)
    ok(act(ada, suite, "pause"))
    assert explain(ada, suite)["smallest_change"] == ["resume the suite"]
    ok(act(ada, suite, "resume"))
    assert explain(ada, suite)["can_run"]
    TaskSuite.objects.filter(pk=suite.pk).update(
        blocked_at=suite.created_at, blocked_reason="2 tasks failed; the suite stops at 2"
    )
    assert "stops at 2" in explain(ada, suite)["summary"]
    ok(act(ada, suite, "cancel", {"reason": "enough"}))
    answer = explain(ada, suite)
    assert answer["obstacles"][0]["code"] == "suite_cancelled"
    assert "enough" in answer["summary"]


def test_preparation_and_its_failure_are_shown(ada: Caller, host: Host) -> None:
    suite = make(ada)
    submit(ada, suite)
    run_pass()
    assert codes(explain(ada, suite)) == ["starting"]
    row = SuiteAssignment.objects.get(manager_id=host.id)
    begin_preparation(manager_id=host.id, assignment_id=row.pk)
    assert codes(explain(ada, suite)) == ["preparing"]
    failure = Failure(PreparationTrouble.COMMAND, 3, "no space left on device")
    fail_preparation(
        manager_id=host.id, assignment_id=row.pk, failure=failure, blocked_after_hosts=3
    )
    answer = explain(ada, suite)
    assert "preparation_failed" in codes(answer)
    assert "no space left on device" in answer["summary"]


def test_max_running_is_a_reason(ada: Caller, host: Host) -> None:
    suite = make(ada, max_running=1)
    submit(ada, suite)
    submit(ada, suite)
    host.engage(suite)
    host.claim(1)
    assert codes(explain(ada, suite)) == ["at_max_running"]


def test_tasks_whose_tags_no_manager_has_explain_the_suite(ada: Caller, host: Host) -> None:
    suite = make(ada)
    submit(ada, suite, tags=["arm"])
    answer = explain(ada, suite)
    assert codes(answer) == ["tags_missing"]
    submit(ada, suite, tags=["gpu"])
    assert explain(ada, suite)["can_run"]


def test_a_task_of_a_suite_is_explained_by_itself_and_by_its_suite(ada: Caller, host: Host) -> None:
    suite = make(ada)
    first = submit(ada, suite, tags=["arm"])
    second = submit(ada, suite, depends_on=[str(first)])
    assert codes(ok(ada.call("GET", f"/tasks/{first}/explain"))) == ["tags_missing"]
    waiting = ok(ada.call("GET", f"/tasks/{second}/explain"))
    assert codes(waiting) == ["waiting_on_upstream"]
    assert str(first) in waiting["summary"]
    ok(act(ada, suite, "pause"))
    assert "suite_paused" in codes(ok(ada.call("GET", f"/tasks/{first}/explain")))


def test_an_independent_task_is_explained_per_worker(ada: Caller) -> None:
    assert ada.user is not None
    one = ok(ada.call("POST", "/tasks", task(tags=["gpu"])))["uuid"]
    answer = ok(ada.call("GET", f"/tasks/{one}/explain"))
    assert codes(answer) == ["no_runners"]
    assert answer["smallest_change"] == ["register a worker for the group ada"]
    worker = new_worker(ada.user, tags=["cpu"]).runner
    answer = ok(ada.call("GET", f"/tasks/{one}/explain"))
    assert [row["uuid"] for row in answer["workers"]] == [str(worker.uuid)]
    assert codes(answer) == ["tags_missing"]
    new_worker(ada.user, tags=["gpu"])
    assert ok(ada.call("GET", f"/tasks/{one}/explain"))["can_run"]


def test_running_and_ended_tasks_say_so(ada: Caller, host: Host) -> None:
    suite = make(ada)
    one = submit(ada, suite)
    host.engage(suite)
    [claimed] = host.claim(1)
    answer = ok(ada.call("GET", f"/tasks/{one}/explain"))
    assert (codes(answer), str(host.uuid) in answer["summary"]) == (["running"], True)
    host.commit(claimed)
    answer = ok(ada.call("GET", f"/tasks/{one}/explain"))
    assert (codes(answer), "succeeded" in answer["summary"]) == (["ended"], True)


def test_explain_is_for_members_only(ada: Caller, eve: Caller) -> None:
    suite = make(ada)
    one = submit(ada, suite)
    for path in (f"/suites/{suite.uuid}/explain", f"/tasks/{one}/explain"):
        refused(eve.call("GET", path), 404)
    refused(eve.call("GET", f"/suites/{uuid4()}/explain"), 404)


def test_explain_costs_the_same_queries_for_one_manager_and_for_many(
    ada: Caller, host: Host, django_assert_max_num_queries: Any
) -> None:
    assert ada.user is not None
    suite = make(ada, tags=["gpu"])
    submit(ada, suite)
    for _ in range(15):
        Host(ada.user, "gpu")
    assert NodeManager.objects.count() == 16
    with django_assert_max_num_queries(7):
        answer = explain(ada, suite)
    assert answer["runner_count"] == 16
