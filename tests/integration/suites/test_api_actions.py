"""Every row of the RFC's transition table and every illegal one, through HTTP."""

import pytest

from mitosis_protocol.enums import SuiteState
from suites.models import TaskSuite
from suites.services.sweeps import close_idle, complete_drained, stop_failing
from tasks.models import ActiveTask
from tests.integration.suites.campaign import counted, turn_back
from tests.integration.suites.hosts import Host
from tests.integration.suites.suite_world import act, make, ok, refused, submit, task
from tests.integration.workers.people import Caller

pytestmark = pytest.mark.django_db(transaction=True)

OPEN, CLOSED, COMPLETE, CANCELLED = SuiteState


def shown(caller: Caller, suite: TaskSuite) -> dict[str, object]:
    answer: dict[str, object] = ok(caller.call("GET", f"/suites/{suite.uuid}"))
    return answer


def state(caller: Caller, suite: TaskSuite) -> object:
    return shown(caller, suite)["state"]


def put(caller: Caller, state_wanted: SuiteState) -> TaskSuite:
    """A suite that came into a state the way it really gets there."""
    suite = make(caller)
    submit(caller, suite)
    if state_wanted is COMPLETE:
        assert caller.user is not None
        host = Host(caller.user)
        host.engage(suite)
        host.run()
    if state_wanted in {CLOSED, COMPLETE}:
        ok(act(caller, suite, "close"))
        complete_drained(batch=10)
    if state_wanted is CANCELLED:
        ok(act(caller, suite, "cancel", {}))
    assert state(caller, suite) == state_wanted.value
    return suite


def test_phase_2_suite_state_transitions_first_submit_keeps_it_open_and_counts(
    ada: Caller,
) -> None:
    suite = make(ada)
    before = shown(ada, suite)
    assert (before["state"], before["last_task_submitted_at"]) == ("Open", None)
    submit(ada, suite)
    after = shown(ada, suite)
    assert (after["state"], after["total_tasks"], after["pending_tasks"]) == ("Open", 1, 1)
    assert after["last_task_submitted_at"] is not None


def test_phase_2_suite_state_transitions_open_closes_after_three_minutes(ada: Caller) -> None:
    suite = put(ada, OPEN)
    turn_back(suite, last_task_submitted_at=181, opened_at=181)
    assert close_idle(idle_s=180, batch=10) == [suite.pk]
    assert state(ada, suite) == "Closed"


@pytest.mark.parametrize("closed", [False, True])
def test_phase_2_suite_state_transitions_completes_when_all_tasks_finished(
    ada: Caller, closed: bool
) -> None:
    assert ada.user is not None
    suite = make(ada, settle_seconds=0)
    submit(ada, suite)
    if closed:
        ok(act(ada, suite, "close"))
    host = Host(ada.user)
    host.engage(suite)
    assert complete_drained(batch=10) == []
    host.run()
    assert complete_drained(batch=10) == [suite.pk]
    answer = shown(ada, suite)
    assert (answer["state"], answer["succeeded_tasks"]) == ("Complete", 1)
    assert answer["completed_at"] is not None


@pytest.mark.parametrize("source", [OPEN, CLOSED, COMPLETE])
def test_phase_2_suite_state_transitions_every_live_state_can_be_cancelled(
    ada: Caller, source: SuiteState
) -> None:
    suite = put(ada, source)
    answer = ok(act(ada, suite, "cancel", {"reason": "enough", "cancel_running_tasks": True}))
    assert answer["suite_state"] == "Cancelled"
    assert answer["cancelled_task_count"] == (0 if source is COMPLETE else 1)
    after = shown(ada, suite)
    assert (after["state"], after["cancel_reason"]) == ("Cancelled", "enough")
    assert after["pending_tasks"] == 0


@pytest.mark.parametrize("source", [CLOSED, COMPLETE])
@pytest.mark.parametrize("route", ["/tasks", "/tasks/submit", "/tasks/array"])
def test_phase_2_suite_state_transitions_a_submit_reopens(
    ada: Caller, source: SuiteState, route: str
) -> None:
    suite = put(ada, source)
    body = task("ada", suite_uuid=str(suite.uuid))
    bodies = {
        "/tasks": body,
        "/tasks/submit": {"tasks": [body]},
        "/tasks/array": {"template": body, "rows": [{}]},
    }
    ok(ada.call("POST", route, bodies[route]), 201 if route == "/tasks/array" else 200)
    after = shown(ada, suite)
    assert (after["state"], after["completed_at"], after["generation"]) == ("Open", None, 2)
    assert (after["total_tasks"], after["pending_tasks"]) == counted(suite)


@pytest.mark.parametrize("route", ["/tasks", "/tasks/array"])
def test_phase_2_suite_state_transitions_cancelled_refuses_submits_with_400(
    ada: Caller, route: str
) -> None:
    suite = put(ada, CANCELLED)
    before = counted(suite)
    body = task("ada", suite_uuid=str(suite.uuid))
    bodies = {"/tasks": body, "/tasks/array": {"template": body, "rows": [{}]}}
    refused(ada.call("POST", route, bodies[route]), 400, "suite_uuid", "cancelled")
    assert counted(suite) == before


@pytest.mark.parametrize("verb", ["cancel", "close", "reopen", "pause", "resume"])
def test_cancelled_is_terminal(ada: Caller, verb: str) -> None:
    suite = put(ada, CANCELLED)
    body = refused(act(ada, suite, verb, {} if verb == "cancel" else None), 409)
    assert body["code"] == "state.invalid_transition"
    assert state(ada, suite) == "Cancelled"
    refused(ada.call("PUT", f"/suites/{suite.uuid}/scale", {"max_running": 1}), 409)
    refused(act(ada, suite, "rerun", {}), 400, "cancelled")


@pytest.mark.parametrize(
    ("source", "verb", "changed", "target"),
    [
        (OPEN, "close", True, CLOSED),
        (CLOSED, "close", False, CLOSED),
        (COMPLETE, "close", False, COMPLETE),
        (OPEN, "reopen", False, OPEN),
        (CLOSED, "reopen", True, OPEN),
        (COMPLETE, "reopen", True, OPEN),
    ],
)
def test_close_and_reopen_from_every_state(
    ada: Caller, source: SuiteState, verb: str, changed: bool, target: SuiteState
) -> None:
    suite = put(ada, source)
    answer = ok(act(ada, suite, verb))
    assert (answer["changed"], answer["suite_state"]) == (changed, target.value)


def test_pause_hands_out_nothing_and_resume_does_again(ada: Caller) -> None:
    assert ada.user is not None
    suite = put(ada, OPEN)
    host = Host(ada.user)
    host.engage(suite)
    assert ok(act(ada, suite, "pause"))["is_paused"]
    assert not ok(act(ada, suite, "pause"))["changed"]
    assert host.claim(5) == ()
    submit(ada, suite)
    answer = ok(act(ada, suite, "resume"))
    assert (answer["is_paused"], answer["changed"]) == (False, True)
    assert len(host.claim(5)) == 2


def test_a_batch_refuses_the_items_of_a_cancelled_suite_and_takes_the_others(
    ada: Caller,
) -> None:
    cancelled, alive = put(ada, CANCELLED), put(ada, OPEN)
    bodies = [task("ada", suite_uuid=str(one.uuid)) for one in (cancelled, alive)]
    before = counted(cancelled)
    [first, second] = ok(ada.call("POST", "/tasks/submit", {"tasks": bodies}))["results"]
    assert "cancelled" in first["Err"]["msg"]
    assert "Ok" in second
    assert counted(cancelled) == before
    assert counted(alive) == (2, 2)


def test_a_suite_of_another_group_is_absent_for_a_submit(ada: Caller, eve: Caller) -> None:
    suite = make(ada)
    refused(eve.call("POST", "/tasks", task("eve", suite_uuid=str(suite.uuid))), 404, "Suite")
    assert not ActiveTask.objects.exists()


def test_phase_2_update_task_submission_suite_uuid_is_echoed_shown_and_filtered(
    ada: Caller,
) -> None:
    suite = make(ada)
    answer = ok(ada.call("POST", "/tasks", task("ada", suite_uuid=str(suite.uuid))))
    assert answer["suite_uuid"] == str(suite.uuid)
    ok(ada.call("POST", "/tasks", task("ada")))
    info = ok(ada.call("GET", f"/tasks/{answer['uuid']}"))["info"]
    assert info["suite_uuid"] == str(suite.uuid)
    found = ok(ada.call("POST", "/tasks/query", {"suite_uuid": str(suite.uuid), "count": False}))
    assert [row["uuid"] for row in found["tasks"]] == [answer["uuid"]]
    done = ok(ada.call("POST", "/tasks/cancel", {"suite_uuid": str(suite.uuid)}))
    assert done["cancelled_count"] == 1
    assert counted(suite) == (1, 0)
    assert ActiveTask.objects.count() == 1


def test_a_suite_that_fails_too_often_stops_and_goes_on_when_resumed(ada: Caller) -> None:
    assert ada.user is not None
    suite = make(ada, max_failures=2)
    for _ in range(5):
        submit(ada, suite)
    host = Host(ada.user)
    host.engage(suite)
    host.run(2, exit_status=256)
    assert stop_failing(batch=10) == [suite.pk]
    reason = shown(ada, suite)["blocked_reason"]
    assert reason == "2 tasks failed; the suite stops at 2"
    assert host.claim(5) == ()
    answer = ok(ada.call("GET", f"/suites/{suite.uuid}/explain"))
    assert answer["obstacles"][0]["code"] == "suite_blocked"
    ok(act(ada, suite, "resume"))
    assert shown(ada, suite)["blocked_reason"] is None
    assert stop_failing(batch=10) == [], "what failed before is forgiven"
    assert len(host.run(5)) == 3


@pytest.mark.parametrize("verb", ["cancel", "rerun"])
def test_a_call_without_a_body_means_the_defaults(ada: Caller, verb: str) -> None:
    suite = put(ada, OPEN)
    ok(act(ada, suite, verb), 201 if verb == "rerun" else 200)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"reason": 7}, "reason"),
        ({"cancel_running_tasks": "yes"}, "cancel_running_tasks"),
        ({"reason": "x" * 100_000}, "reason"),
    ],
)
def test_a_wrong_cancel_is_named_and_changes_nothing(
    ada: Caller, body: dict[str, object], word: str
) -> None:
    suite = put(ada, OPEN)
    refused(act(ada, suite, "cancel", body), 422, word)
    assert state(ada, suite) == "Open"
