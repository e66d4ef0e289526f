"""Tags of single tasks decide who is engaged, and `explain` says the same."""

import pytest

from accounts.actors import SYSTEM
from accounts.models import User
from managers.enums import ReleaseReason
from managers.models import SchedulerConfig
from managers.services import attributes, eligibility
from managers.services.scheduler import run_pass
from tasks.services.explain import explain_suite
from tests.integration.managers.fleet import age, connect, engagement_of, register, start_work
from tests.integration.suites.campaign import end_tasks, make_suite, make_user, submit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ada() -> User:
    return make_user("ada")


def test_a_manager_that_lacks_the_tags_of_all_waiting_tasks_is_not_engaged(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada, "linux")
    connect(manager)
    submit(suite, 3, tags=["gpu"])
    assert run_pass().engaged == []
    explanation = explain_suite(user=ada, suite=suite)
    assert not explanation.can_run
    assert [one.code for one in explanation.verdicts[0].obstacles] == ["tags_missing"]
    assert explanation.changes == [f"add gpu to manager {manager.uuid}"]
    attributes.replace_tags(actor=SYSTEM, runner=manager, tags=["gpu", "linux"])
    assert explain_suite(user=ada, suite=suite).can_run
    assert [one.manager_id for one in run_pass().engaged] == [manager.pk]


def test_one_kind_of_task_it_can_run_is_enough(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada)
    connect(manager)
    submit(suite, 3, tags=["gpu"])
    submit(suite, 1)
    assert len(run_pass().engaged) == 1


def test_choosing_a_manager_by_hand_does_not_give_it_the_tags_of_tasks(ada: User) -> None:
    suite, manager = make_suite(ada, tags=["arm"]), register(ada)
    connect(manager)
    eligibility.add_managers(actor=SYSTEM, user=ada, suite=suite, manager_uuids=[manager.uuid])
    submit(suite, 1, tags=["gpu"])
    assert run_pass().engaged == []
    submit(suite, 1)
    assert len(run_pass().engaged) == 1


def test_a_host_that_can_run_none_of_the_rest_makes_room_for_one_that_can(ada: User) -> None:
    suite, plain, special = make_suite(ada), register(ada), register(ada, "gpu")
    connect(plain)
    tasks = submit(suite, 1)
    run_pass()
    row = start_work(plain)
    connect(special)
    submit(suite, 1, tags=["gpu"])
    assert [one.manager_id for one in run_pass().engaged] == [special.pk]
    start_work(special)
    # Only the special task is left: the plain host idles, and makes room once another suite waits.
    end_tasks(tasks)
    run_pass()
    row.refresh_from_db()
    assert row.idle_since is not None
    seconds = SchedulerConfig.objects.get(pk=1).idle_threshold_s + 1
    age("suite_assignments", f"id = {row.pk}", idle_since=seconds)
    urgent = make_suite(ada, priority=9)
    eligibility.match_suites([urgent.pk])
    submit(urgent)
    assert run_pass().released == [(row.pk, ReleaseReason.MADE_ROOM)]
    assert engagement_of(special) is not None
