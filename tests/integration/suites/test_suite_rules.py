"""Making, changing, pausing and stopping suites; and input that must not get in."""

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from accounts.actors import SYSTEM
from accounts.models import User
from accounts.selectors import get_group
from accounts.services.groups import create_group, set_group_state
from core.errors import Conflict, InvalidInput, InvalidTransition, NotFound, PermissionDenied
from mitosis_protocol.enums import GroupState, Role, SuiteState
from mitosis_protocol.specs import WorkerSchedule
from mitosis_protocol.suites import SuiteChange, SuiteScale, SuiteSpec
from suites.models import TaskSuite
from suites.selectors import SuiteFilter, access_suite, list_suites
from suites.services.create import change_suite, delete_suite, scale_suite
from suites.services.lifecycle import cancel_suite_row
from suites.services.pausing import block_suite, pause_suite, resume_suite
from suites.services.sweeps import stop_failing
from suites.spec_input import parse_spec
from tests.integration.suites.campaign import count_failures, make_suite, make_user, submit

pytestmark = pytest.mark.django_db(transaction=True)

BODY: dict[str, Any] = {
    "name": "ML Training Campaign",
    "group_name": "ada",
    "tags": ["gpu", "linux"],
    "labels": ["project:resnet"],
    "priority": 10,
    "worker_schedule": {
        "worker_count": 16,
        "cpu_binding": {"cores": [0, 1, 2, 3], "strategy": "RoundRobin"},
        "task_prefetch_count": 32,
    },
    "env_preparation": {
        "args": ["./setup.sh"],
        "envs": {"DATA_DIR": "/mnt/data"},
        "resources": [
            {"remote_file": {"Attachment": {"key": "setup.sh"}}, "local_path": "setup.sh"}
        ],
        "timeout": "5m",
    },
    "env_cleanup": {"args": ["./cleanup.sh"], "envs": {}, "resources": [], "timeout": "2m"},
}


@pytest.fixture
def ada() -> User:
    return make_user("ada")


def test_the_rfcs_body_is_taken_as_it_is() -> None:
    spec = parse_spec(BODY, SuiteSpec)
    assert spec.worker_schedule.worker_count == 16
    assert spec.env_preparation is not None
    assert spec.env_preparation.timeout_s == 300


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"worker_schedule": {"worker_count": 0}}, "worker_schedule.worker_count"),
        ({"worker_schedule": {"worker_count": -4}}, "worker_schedule.worker_count"),
        ({"worker_schedule": {"worker_count": 4_000_000_000}}, "worker_schedule.worker_count"),
        ({"worker_schedule": {"worker_count": "4"}}, "worker_schedule.worker_count"),
        ({"worker_schedule": {}}, "worker_schedule.worker_count"),
        (
            {"worker_schedule": {"worker_count": 1, "task_prefetch_count": 129}},
            "worker_schedule",
        ),
        (
            {"worker_schedule": {"worker_count": 1, "task_prefetch_count": 2**32}},
            "worker_schedule.task_prefetch_count",
        ),
        (
            {"worker_schedule": {"worker_count": 1, "cpu_binding": {"cores": [-1]}}},
            "worker_schedule.cpu_binding.cores",
        ),
        (
            {"worker_schedule": {"worker_count": 1, "cpu_binding": {"cores": [99_999]}}},
            "worker_schedule.cpu_binding.cores",
        ),
        (
            {"worker_schedule": {"worker_count": 1, "cpu_binding": {"cores": [1, 1]}}},
            "worker_schedule.cpu_binding",
        ),
        (
            {"worker_schedule": {"worker_count": 1, "cpu_binding": {"strategy": "Magic"}}},
            "worker_schedule.cpu_binding.strategy",
        ),
        ({"env_preparation": {"args": [], "timeout": "5m"}}, "env_preparation.args"),
        ({"env_preparation": {"timeout": "5m"}}, "env_preparation.args"),
        ({"env_preparation": {"args": ["x"], "timeout": "soon"}}, "env_preparation"),
        ({"env_preparation": {"args": ["x"], "timeout": "-5m"}}, "env_preparation"),
        ({"env_preparation": {"args": ["x"], "timeout": "0s"}}, "env_preparation"),
        ({"env_cleanup": {"args": ["x"]}}, "env_cleanup.timeout"),
        ({"priority": 2**31}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"max_running": 0}, "max_running"),
        ({"max_failures": -1}, "max_failures"),
        ({"failure_rate": 0}, "failure_rate"),
        ({"failure_rate": 1.1}, "failure_rate"),
        ({"linger_seconds": -1}, "linger_seconds"),
        ({"settle_seconds": 10**9}, "settle_seconds"),
        ({"auto_match": "yes"}, "auto_match"),
        ({"on_partition": "panic"}, "on_partition"),
        ({"limits": {"memory": 1}}, "limits.memory"),
        ({"limits": {"cpus": 0}}, "limits.cpus"),
        ({"limits": {"on_oom": {"factor": 2, "max": 5}}}, "limits"),
        ({"tags": ["x"] * 65}, "tags"),
        ({"tags": [""]}, "tags"),
        ({"tags": ["a\x00b"]}, "tags"),
        ({"labels": ["y" * 300]}, "labels"),
        ({"name": "n" * 300}, "name"),
        ({"group_name": None}, "group_name"),
        ({"prioritty": 1}, "prioritty"),
    ],
)
def test_bad_input_is_refused_naming_the_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse_spec({**BODY, **change}, SuiteSpec)
    assert refusal.value.http_status == 400
    assert field in refusal.value.message


@pytest.mark.parametrize("body", [None, [], "x", 7])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    with pytest.raises(InvalidInput):
        parse_spec(body, SuiteSpec)


def test_defaults_come_from_the_policy_and_zero_is_a_choice(ada: User) -> None:
    suite = make_suite(ada)
    assert (suite.settle_seconds, suite.linger_seconds) == (10, 60)
    suite = make_suite(ada, settle_seconds=0, linger_seconds=0)
    assert (suite.settle_seconds, suite.linger_seconds) == (0, 0)


def test_a_locked_group_takes_no_suites(ada: User) -> None:
    set_group_state(actor=SYSTEM, group=get_group("ada"), state=GroupState.LOCKED)
    with pytest.raises(PermissionDenied, match="group_name"):
        make_suite(ada)


def test_a_stranger_cannot_tell_a_suite_from_none(ada: User) -> None:
    suite, bob = make_suite(ada), make_user("bob")
    with pytest.raises(NotFound):
        access_suite(bob, suite.uuid, Role.READ)
    assert access_suite(ada, suite.uuid, Role.ADMIN).suite == suite


def test_suites_are_listed_by_group_tags_labels_state_and_name(ada: User) -> None:
    first = make_suite(ada, name="Alpha run", tags=["gpu"], labels=["a"])
    second = make_suite(ada, name="beta", labels=["a", "b"])
    make_suite(make_user("bob"), name="alpha too")
    cancel_suite_row(actor=SYSTEM, suite=second, reason="a test")

    def found(**wanted: Any) -> list[TaskSuite]:
        return list(list_suites(ada, SuiteFilter(**wanted)))

    assert found() == [second, first]
    assert found(group_name="bob") == []
    assert found(tags=["gpu"]) == [first]
    assert found(labels=["a", "b"]) == [second]
    assert found(states=[SuiteState.CANCELLED]) == [second]
    assert found(name_contains="ALPHA") == [first]
    assert found(name_contains="%") == []


def test_changes_touch_what_was_given_only(ada: User) -> None:
    suite = make_suite(ada, name="one", labels=["x"], priority=3)
    changed = change_suite(actor=SYSTEM, suite=suite, change=SuiteChange(priority=7, name=None))
    assert (changed.name, changed.labels, changed.priority) == (None, ["x"], 7)
    with pytest.raises(InvalidInput):
        change_suite(actor=SYSTEM, suite=suite, change=SuiteChange())


def test_scaling_changes_the_plan_and_the_cap(ada: User) -> None:
    suite = make_suite(ada)
    scale = SuiteScale(worker_schedule=WorkerSchedule(worker_count=9), max_running=5)
    changed = scale_suite(actor=SYSTEM, suite=suite, scale=scale)
    assert changed.worker_schedule["worker_count"] == 9
    assert changed.max_running == 5
    changed = scale_suite(actor=SYSTEM, suite=suite, scale=SuiteScale(max_running=None))
    assert changed.max_running is None


def test_only_a_suite_that_never_had_a_task_can_be_deleted(ada: User) -> None:
    empty, used = make_suite(ada), make_suite(ada)
    submit(used)
    delete_suite(actor=SYSTEM, suite=empty)
    with pytest.raises(Conflict):
        delete_suite(actor=SYSTEM, suite=used)
    assert list(TaskSuite.objects.all()) == [used]


def test_pause_and_resume_are_idempotent_and_refuse_a_cancelled_suite(ada: User) -> None:
    suite = make_suite(ada)
    assert pause_suite(actor=SYSTEM, suite=suite)
    assert not pause_suite(actor=SYSTEM, suite=suite)
    resume_suite(actor=SYSTEM, suite=suite)
    resume_suite(actor=SYSTEM, suite=suite)
    suite.refresh_from_db()
    assert suite.paused_at is None
    cancel_suite_row(actor=SYSTEM, suite=suite, reason="a test")
    for call in (pause_suite, resume_suite):
        with pytest.raises(InvalidTransition):
            call(actor=SYSTEM, suite=suite)


def test_the_first_reason_to_block_stays(ada: User) -> None:
    suite = make_suite(ada)
    assert block_suite(suite.pk, reason="first")
    assert not block_suite(suite.pk, reason="second")
    suite.refresh_from_db()
    assert suite.blocked_reason == "first"


def test_too_many_failures_stop_the_suite_until_it_is_resumed(ada: User) -> None:
    suite = make_suite(ada, max_failures=3)
    submit(suite)
    count_failures(suite, failed=2)
    assert stop_failing(batch=10) == []
    count_failures(suite, failed=1)
    assert stop_failing(batch=10) == [suite.pk]
    assert stop_failing(batch=10) == []
    suite.refresh_from_db()
    assert suite.blocked_reason == "3 tasks failed; the suite stops at 3"
    resume_suite(actor=SYSTEM, suite=suite)
    assert stop_failing(batch=10) == [], "what failed before is forgiven"
    count_failures(suite, failed=3)
    assert stop_failing(batch=10) == [suite.pk]


def test_a_failure_rate_needs_enough_ended_tasks(ada: User) -> None:
    suite = make_suite(ada, failure_rate=0.5)
    submit(suite)
    count_failures(suite, failed=9, succeeded=1)
    assert stop_failing(batch=10) == []
    count_failures(suite, failed=1, succeeded=9)
    assert stop_failing(batch=10) == [suite.pk]
    suite.refresh_from_db()
    assert suite.blocked_reason == "10 of 20 tasks failed; the suite stops at 50.0 %"


def test_the_database_keeps_its_own_rules(ada: User) -> None:
    suite = make_suite(ada)
    for statement in (
        "UPDATE task_suites SET state = 9 WHERE id = %s",
        "UPDATE task_suites SET state = 2, completed_at = now() WHERE id = %s",
        "UPDATE task_suites SET max_running = 0 WHERE id = %s",
        "UPDATE task_suites SET blocked_at = now() WHERE id = %s",
        "UPDATE task_suites SET group_id = 0 WHERE id = %s",
    ):
        with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, [suite.pk])


def test_a_group_with_suites_cannot_be_deleted(ada: User) -> None:
    suite = make_suite(ada)
    group = create_group(actor=SYSTEM, creator=ada, name="lab")
    TaskSuite.objects.filter(pk=suite.pk).update(group=group)
    group.memberships.all().delete()
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM groups WHERE id = %s", [group.pk])
