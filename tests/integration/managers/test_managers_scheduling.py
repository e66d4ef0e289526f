"""Matching and the scheduler's pass on a real database: what is written, and that it is guarded."""

import pytest
from django.db import IntegrityError, connection, transaction

from accounts.actors import SYSTEM
from accounts.models import User
from accounts.services.groups import create_group, put_members
from core.errors import NotFound
from managers.enums import PreparationTrouble, ReleaseReason
from managers.models import PreparationFailure, SuiteAssignment, SuiteManager
from managers.services import attributes, eligibility, engagement, wishes
from managers.services.scheduler import run_pass
from mitosis_protocol.enums import AssignmentState, Role, SelectionType
from runners.models import Runner
from suites.models import TaskSuite
from suites.services.lifecycle import cancel_suite_row, close_suite
from suites.services.pausing import resume_suite
from suites.services.sweeps import complete_drained
from tests.integration.managers.fleet import (
    age,
    connect,
    engagement_of,
    register,
    start_work,
)
from tests.integration.suites.campaign import end_tasks, make_suite, make_user, submit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ada() -> User:
    return make_user("ada")


def eligible(suite: TaskSuite) -> set[int]:
    rows = SuiteManager.objects.filter(suite=suite, removed_at__isnull=True)
    return set(rows.values_list("manager_id", flat=True))


def fail_on(runner: Runner, message: str = "no such dataset") -> bool:
    row = engagement_of(runner)
    assert row is not None
    return engagement.fail_preparation(
        manager_id=runner.pk,
        assignment_id=row.pk,
        failure=engagement.Failure(PreparationTrouble.COMMAND, 1, message),
        blocked_after_hosts=3,
    )


def test_a_new_manager_is_matched_to_live_suites_and_a_new_suite_to_managers(ada: User) -> None:
    suite = make_suite(ada, tags=["gpu"])
    fitting, _other = register(ada, "gpu", "linux"), register(ada, "linux")
    assert eligible(suite) == {fitting.pk}
    later = make_suite(ada, tags=["linux"])
    matched = eligibility.match_suites([later.pk])
    assert len(matched.added) == 2
    assert SuiteManager.objects.get(suite=suite).matched_tags == ["gpu"]


def test_changed_tags_and_roles_are_matched_again(ada: User) -> None:
    suite = make_suite(ada, tags=["gpu"])
    manager = register(ada, "linux")
    attributes.replace_tags(actor=SYSTEM, runner=manager, tags=["gpu"])
    assert eligible(suite) == {manager.pk}
    attributes.replace_tags(actor=SYSTEM, runner=manager, tags=["linux"])
    assert eligible(suite) == set()
    attributes.replace_tags(actor=SYSTEM, runner=manager, tags=["gpu"])
    attributes.remove_groups(actor=SYSTEM, runner=manager, group_names=["ada"])
    assert eligible(suite) == set()


def test_a_pending_or_read_role_does_not_match(ada: User) -> None:
    bob = make_user("bob")
    group = create_group(actor=SYSTEM, creator=ada, name="lab")
    put_members(actor=SYSTEM, group=group, roles={"bob": Role.WRITE})
    suite = TaskSuite.objects.get(pk=make_suite(ada).pk)
    TaskSuite.objects.filter(pk=suite.pk).update(group=group)
    pending = register(bob, groups=["lab"])
    reading = register(ada, groups=["lab:read"])
    writing = register(ada, groups=["lab"])
    eligibility.sweep_matches()
    assert eligible(suite) == {writing.pk}
    attributes.decide_consent(
        actor=SYSTEM, decided_by=ada, runner=pending, group=group, accept=True
    )
    assert eligible(suite) == {writing.pk, pending.pk}
    attributes.decide_consent(
        actor=SYSTEM, decided_by=ada, runner=pending, group=group, accept=False
    )
    assert eligible(suite) == {writing.pk}
    assert reading.pk not in eligible(suite)


def test_a_suite_that_does_not_match_by_itself_is_matched_by_a_refresh(ada: User) -> None:
    suite = make_suite(ada, auto_match=False)
    manager = register(ada)
    eligibility.sweep_matches()
    assert eligible(suite) == set()
    matched = eligibility.refresh_suite(actor=SYSTEM, user=ada, suite=suite)
    assert [one for _, one in matched.added] == [manager.uuid]
    assert eligible(suite) == {manager.pk}


def test_refresh_reports_what_went_and_leaves_what_people_chose(ada: User) -> None:
    suite = make_suite(ada, tags=["gpu"])
    gone, chosen = register(ada, "gpu"), register(ada)
    eligibility.add_managers(actor=SYSTEM, user=ada, suite=suite, manager_uuids=[chosen.uuid])
    Runner.objects.filter(pk=gone.pk).update(tags=[])
    matched = eligibility.refresh_suite(actor=SYSTEM, user=ada, suite=suite)
    assert ([one for _, one in matched.removed], matched.added) == ([gone.uuid], [])
    assert SuiteManager.objects.get(suite=suite).selection_type is SelectionType.USER_SPECIFIED


def test_a_manager_taken_off_by_hand_stays_off_until_a_refresh(ada: User) -> None:
    suite = make_suite(ada)
    manager = register(ada)
    removed = eligibility.remove_managers(actor=SYSTEM, suite=suite, manager_uuids=[manager.uuid])
    assert removed == 1
    eligibility.sweep_matches()
    eligibility.match_managers([manager.pk])
    assert eligible(suite) == set()
    connect(manager)
    submit(suite)
    assert run_pass().engaged == []
    eligibility.refresh_suite(actor=SYSTEM, user=ada, suite=suite)
    assert eligible(suite) == {manager.pk}
    assert len(run_pass().engaged) == 1


def test_choosing_a_manager_without_the_role_is_rejected_with_a_reason(ada: User) -> None:
    bob = make_user("bob")
    suite, foreign, own = make_suite(ada), register(bob), register(ada)
    answer = eligibility.add_managers(
        actor=SYSTEM, user=ada, suite=suite, manager_uuids=[foreign.uuid, own.uuid]
    )
    assert answer.added == []
    assert answer.rejected == [foreign.uuid]
    assert answer.reason is not None
    assert "'ada' does not have Write role" in answer.reason


def test_matching_twice_changes_nothing(ada: User) -> None:
    make_suite(ada)
    register(ada)
    assert eligibility.sweep_matches().count == 0


def test_a_pass_engages_an_idle_connected_manager_once(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada)
    assert run_pass().engaged == [], "no work"
    submit(suite)
    assert run_pass().engaged == [], "not connected"
    connect(manager)
    [engaged] = run_pass().engaged
    assert (engaged.suite_id, engaged.manager_id) == (suite.pk, manager.pk)
    assert run_pass().count == 0


def test_the_database_refuses_a_second_live_engagement(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada)
    submit(suite)
    connect(manager)
    run_pass()
    with pytest.raises(IntegrityError), transaction.atomic():
        SuiteAssignment.objects.create(
            suite=suite, manager_id=manager.pk, lease_expires_at=suite.created_at
        )


def test_an_engagement_goes_from_assigned_to_released(ada: User) -> None:
    suite, manager = make_suite(ada, linger_seconds=0), register(ada)
    tasks = submit(suite)
    connect(manager)
    run_pass()
    row = start_work(manager)
    assert row.state is AssignmentState.EXECUTING
    assert row.prepared_at is not None
    end_tasks(tasks)
    close_suite(actor=SYSTEM, suite=suite)
    complete_drained(batch=10)
    run_pass()
    row.refresh_from_db()
    assert row.state is AssignmentState.LINGERING
    assert run_pass().released == [(row.pk, ReleaseReason.DONE)]
    row.refresh_from_db()
    assert row.state is AssignmentState.CLEANUP
    assert row.released_at is None
    assert engagement.finish_engagement(manager_id=manager.pk, assignment_id=row.pk)
    assert not engagement.finish_engagement(manager_id=manager.pk, assignment_id=row.pk)
    row.refresh_from_db()
    assert row.release_reason is ReleaseReason.DONE


def test_a_reopened_suite_finds_its_host_lingering(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada)
    tasks = submit(suite)
    connect(manager)
    run_pass()
    row = start_work(manager)
    end_tasks(tasks)
    close_suite(actor=SYSTEM, suite=suite)
    complete_drained(batch=10)
    run_pass()
    submit(suite)
    run_pass()
    row.refresh_from_db()
    assert row.state is AssignmentState.EXECUTING
    assert row.idle_since is None


def test_lingering_is_cut_short_for_another_suite(ada: User) -> None:
    first, second, manager = make_suite(ada), make_suite(ada), register(ada)
    tasks = submit(first)
    connect(manager)
    run_pass()
    row = start_work(manager)
    end_tasks(tasks)
    close_suite(actor=SYSTEM, suite=first)
    complete_drained(batch=10)
    run_pass()
    submit(second)
    assert run_pass().released == [(row.pk, ReleaseReason.MADE_ROOM)]
    assert run_pass().count == 0, "nobody else has to leave meanwhile"


def test_a_lease_is_renewed_while_there_is_work(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada)
    submit(suite)
    connect(manager)
    run_pass()
    row = start_work(manager)
    age("suite_assignments", f"id = {row.pk}", lease_expires_at=4000)
    assert run_pass().renewed == 1
    before, renewals = row.lease_expires_at, row.renewals
    row.refresh_from_db()
    assert (row.renewals, row.lease_expires_at >= before) == (renewals + 1, True)


def test_a_cancelled_suite_loses_its_hosts(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada)
    submit(suite)
    connect(manager)
    run_pass()
    row = start_work(manager)
    cancel_suite_row(actor=SYSTEM, suite=suite, reason="a test")
    assert run_pass().released == [(row.pk, ReleaseReason.CANCELLED)]


def test_an_engagement_nobody_began_ends_at_once(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada)
    submit(suite)
    connect(manager)
    [engaged] = run_pass().engaged
    wishes.drain_manager(actor=SYSTEM, runner=manager)
    run_pass()
    row = SuiteAssignment.objects.get(pk=engaged.assignment_id)
    assert row.state is AssignmentState.RELEASED
    assert row.release_reason is ReleaseReason.DRAIN


def test_a_failed_preparation_is_never_tried_on_that_host_again(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada)
    submit(suite)
    connect(manager)
    run_pass()
    row = engagement_of(manager)
    assert row is not None
    assert not fail_on(manager)
    assert not fail_on(manager), "said twice: counted once"
    assert PreparationFailure.objects.count() == 1
    engagement.finish_engagement(manager_id=manager.pk, assignment_id=row.pk)
    assert run_pass().engaged == []
    row.refresh_from_db()
    assert row.release_reason is ReleaseReason.PREPARATION


def test_three_hosts_that_cannot_be_prepared_block_the_suite_until_it_is_resumed(
    ada: User,
) -> None:
    suite = make_suite(ada)
    managers = [register(ada) for _ in range(4)]
    submit(suite, 16)
    connect(*managers)
    assert len(run_pass().engaged) == 4
    assert [fail_on(manager) for manager in managers[:3]] == [False, False, True]
    suite.refresh_from_db()
    assert suite.blocked_reason is not None
    assert "3 hosts" in suite.blocked_reason
    assert "no such dataset" in suite.blocked_reason
    resume_suite(actor=SYSTEM, suite=suite)
    assert engagement.forgive_preparations(suite) == 3
    suite.refresh_from_db()
    assert suite.blocked_at is None


def test_nobody_moves_the_engagement_of_somebody_else(ada: User) -> None:
    suite, manager, other = make_suite(ada), register(ada), register(ada)
    submit(suite)
    connect(manager)
    [engaged] = run_pass().engaged
    with pytest.raises(NotFound):
        engagement.begin_preparation(manager_id=other.pk, assignment_id=engaged.assignment_id)


def test_a_manager_that_comes_back_prepared_is_engaged_again(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada)
    submit(suite)
    connect(manager)
    run_pass()
    row = start_work(manager)
    same = engagement.readopt(manager_id=manager.pk, suite_uuid=suite.uuid, lease_s=60)
    assert same == row.pk
    engagement.release_all([manager.pk], ReleaseReason.LEASE)
    again = engagement.readopt(manager_id=manager.pk, suite_uuid=suite.uuid, lease_s=60)
    assert again is not None
    assert again != row.pk
    engagement.release_all([manager.pk], ReleaseReason.LEASE)
    cancel_suite_row(actor=SYSTEM, suite=suite, reason="a test")
    assert engagement.readopt(manager_id=manager.pk, suite_uuid=suite.uuid, lease_s=60) is None


def test_a_role_taken_away_ends_the_engagement(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada)
    submit(suite)
    connect(manager)
    run_pass()
    row = start_work(manager)
    attributes.remove_groups(actor=SYSTEM, runner=manager, group_names=["ada"])
    assert run_pass().released == [(row.pk, ReleaseReason.INELIGIBLE)]


def test_a_suite_with_history_cannot_be_deleted_from_the_database(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada)
    submit(suite)
    connect(manager)
    run_pass()
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM task_suites WHERE id = %s", [suite.pk])
