"""Running ended tasks again: new tasks that carry `rerun_of`, one outcome per task kept."""

from uuid import UUID, uuid4

import pytest

from mitosis_protocol.enums import Outcome
from suites.models import TaskSuite
from suites.selectors import suite_counts
from suites.services.sweeps import complete_drained
from tasks.models import ActiveTask, ArchivedTask, TaskDependency, TaskRerun
from tests.integration.suites.campaign import counted
from tests.integration.suites.hosts import Host
from tests.integration.suites.suite_world import act, make, ok, refused, submit
from tests.integration.workers.people import Caller

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def host(ada: Caller) -> Host:
    assert ada.user is not None
    return Host(ada.user)


def failed_suite(caller: Caller, host: Host, count: int = 2) -> tuple[TaskSuite, list[UUID]]:
    suite = make(caller)
    uuids = [submit(caller, suite, priority=7, labels=[f"n:{n}"]) for n in range(count)]
    host.engage(suite)
    host.run(count, exit_status=256)
    return suite, uuids


def test_failed_tasks_run_again_as_new_tasks(ada: Caller, host: Host) -> None:
    suite, old = failed_suite(ada, host)
    answer = ok(act(ada, suite, "rerun", {}), 201)
    assert (answer["count"], answer["has_more"], answer["suite_state"]) == (2, False, "Open")
    assert [UUID(one["rerun_of"]) for one in answer["tasks"]] == old
    assert [one["task_id"] for one in answer["tasks"]] == [3, 4]
    new = list(ActiveTask.objects.order_by("id"))
    assert [str(one.uuid) for one in new] == [one["uuid"] for one in answer["tasks"]]
    assert {one.priority for one in new} == {7}
    assert [one.labels for one in new] == [["n:0"], ["n:1"]]
    assert {(one.failures, one.attempt) for one in new} == {(0, 0)}
    # The old ones keep their end.
    assert set(ArchivedTask.objects.values_list("outcome", flat=True)) == {Outcome.FAILED}
    assert counted(suite) == (4, 2)
    counts = suite_counts([suite.pk])[suite.pk]
    assert (counts.total, counts.pending, counts.failed) == (4, 2, 2)
    assert len(host.run(5)) == 2
    assert suite_counts([suite.pk])[suite.pk].succeeded == 2


def test_a_rerun_reopens_a_complete_suite_and_finding_nothing_does_not(
    ada: Caller, host: Host
) -> None:
    suite, _ = failed_suite(ada, host, 1)
    ok(act(ada, suite, "close"))
    complete_drained(batch=10)
    nothing = ok(act(ada, suite, "rerun", {"outcomes": ["oom"]}), 201)
    assert (nothing["count"], nothing["suite_state"]) == (0, "Complete")
    assert ok(act(ada, suite, "rerun", {}), 201)["suite_state"] == "Open"


def test_a_task_is_rerun_once_and_a_rerun_that_fails_can_be_rerun(ada: Caller, host: Host) -> None:
    suite, [first] = failed_suite(ada, host, 1)
    [second] = ok(act(ada, suite, "rerun", {}), 201)["tasks"]
    assert ok(act(ada, suite, "rerun", {}), 201)["count"] == 0
    host.run(1, exit_status=256)
    [third] = ok(act(ada, suite, "rerun", {}), 201)["tasks"]
    assert third["rerun_of"] == second["uuid"]
    assert second["rerun_of"] == str(first)
    assert TaskRerun.objects.count() == 2
    info = ok(ada.call("GET", f"/tasks/{third['uuid']}"))["info"]
    assert info["rerun_of"] == second["uuid"]
    assert ok(ada.call("GET", f"/tasks/{first}"))["info"]["rerun_of"] is None


def test_only_the_named_tasks_run_again(ada: Caller, host: Host) -> None:
    suite, [first, second] = failed_suite(ada, host)
    body = {"task_uuids": [str(second), str(uuid4())]}
    answer = ok(act(ada, suite, "rerun", body), 201)
    assert [one["rerun_of"] for one in answer["tasks"]] == [str(second)]
    assert str(first) not in str(answer)


def test_dependencies_among_rerun_tasks_are_kept(ada: Caller, host: Host) -> None:
    suite = make(ada)
    first = submit(ada, suite)
    second = submit(ada, suite, depends_on=[str(first)])
    host.engage(suite)
    host.run(1, exit_status=256)
    assert ArchivedTask.objects.get(uuid=second).outcome is Outcome.UPSTREAM_FAILED
    answer = ok(act(ada, suite, "rerun", {}), 201)
    assert [UUID(one["rerun_of"]) for one in answer["tasks"]] == [first, second]
    new_first, new_second = ActiveTask.objects.order_by("id")
    assert (new_first.dependents, new_second.waiting_on) == (1, 1)
    edge = TaskDependency.objects.get(task_id=new_second.pk)
    assert edge.upstream_id == new_first.pk
    host.run(1)
    host.run(1)
    assert counted(suite) == (4, 0)
    assert suite_counts([suite.pk])[suite.pk].succeeded == 2


@pytest.mark.parametrize("is_over", [False, True])
def test_a_dependency_points_at_the_newest_run_of_the_upstream_task(
    ada: Caller, host: Host, is_over: bool
) -> None:
    suite = make(ada)
    first = submit(ada, suite)
    second = submit(ada, suite, depends_on=[str(first)])
    host.engage(suite)
    host.run(1, exit_status=256)
    ok(act(ada, suite, "rerun", {"task_uuids": [str(first)]}), 201)
    if is_over:
        host.run(1)
    answer = ok(act(ada, suite, "rerun", {"task_uuids": [str(second)]}), 201)
    again = ActiveTask.objects.get(uuid=answer["tasks"][0]["uuid"])
    assert again.waiting_on == (0 if is_over else 1)
    while host.run(1):
        pass
    assert counted(suite) == (4, 0)
    assert suite_counts([suite.pk])[suite.pk].succeeded == 2


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"outcomes": ["nope"]}, "outcomes"),
        ({"outcomes": []}, "outcomes"),
        ({"task_uuids": ["x"]}, "task_uuids"),
        ({"task_uuids": []}, "task_uuids"),
    ],
)
def test_a_wrong_rerun_is_named(ada: Caller, body: dict[str, object], word: str) -> None:
    refused(act(ada, make(ada), "rerun", body), 422, word)
