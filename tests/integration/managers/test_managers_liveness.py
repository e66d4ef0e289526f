"""Silence, quarantine, and the sweeps that run with beat or without it."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection, connections
from django.utils import timezone

from accounts.actors import SYSTEM
from accounts.models import User
from core.errors import Conflict, InvalidInput, InvalidTransition, Superseded
from managers.models import NodeManager, SuiteManager, SweepRun
from managers.services import quarantine, sweeps, wishes
from managers.services.config import change_config, read_config, require_suites_enabled
from managers.services.expiry import expire_managers
from managers.services.heartbeat import Beat, record_beat
from managers.services.scheduler import run_pass
from managers.services.state import move_manager
from mitosis_protocol.enums import AssignmentState, DesiredState, ManagerState
from mitosis_protocol.transitions import MANAGER, can_move
from runners.models import IngestPresence, Runner
from suites.models import TaskSuite
from tests.integration.managers.fleet import age, connect, engagement_of, register, start_work
from tests.integration.suites.campaign import end_tasks, make_suite, make_user, submit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ada() -> User:
    return make_user("ada")


def expire(**changes: float) -> list[int]:
    numbers = {"grace_s": 5, "lease_ttl_s": 120, "mass_expiry_ratio": 0.3, "batch": 100, **changes}
    return expire_managers(**numbers)  # type: ignore[arg-type]


def silence(*runners: Runner, seconds: float) -> None:
    ids = ", ".join(str(one.pk) for one in runners)
    age("runner_leases", f"runner_id IN ({ids})", expires_at=120 + seconds)


def failed_here_succeeded_elsewhere(here: Runner, elsewhere: Runner, suite: TaskSuite) -> None:
    """The evidence of one task, as crash report and commit leave it behind."""
    [task_id] = submit(suite)
    end_tasks([task_id])
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE archived_tasks SET outcome = 0, state = 3, runner_id = %s WHERE id = %s",
            [elsewhere.pk, task_id],
        )
        cursor.execute(
            "INSERT INTO task_execution_failures (task_id, task_uuid, suite_id, runner_id)"
            " SELECT id, uuid, suite_id, %s FROM archived_tasks WHERE id = %s",
            [here.pk, task_id],
        )


@pytest.mark.parametrize("source", list(ManagerState))
@pytest.mark.parametrize("target", list(ManagerState))
def test_a_manager_moves_along_its_table_and_nowhere_else(
    ada: User, source: ManagerState, target: ManagerState
) -> None:
    manager = register(ada)
    NodeManager.objects.filter(pk=manager.pk).update(state=source)
    if can_move(MANAGER, source, target):
        assert move_manager(manager.pk, target)
    else:
        with pytest.raises(InvalidTransition):
            move_manager(manager.pk, target)
        assert not move_manager(manager.pk, target, idempotent=True)


def test_a_silent_manager_is_offline_and_keeps_its_eligibility(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada)
    submit(suite)
    connect(manager)
    run_pass()
    row = start_work(manager)
    assert expire() == []
    silence(manager, seconds=4)
    assert expire() == [], "within the grace"
    silence(manager, seconds=2)
    assert expire() == [manager.pk]
    assert expire() == [], "once is enough"
    row.refresh_from_db()
    assert row.state is AssignmentState.RELEASED
    assert NodeManager.objects.get(pk=manager.pk).state is ManagerState.OFFLINE
    assert SuiteManager.objects.filter(suite=suite, manager_id=manager.pk).exists()


def test_a_heartbeat_brings_an_offline_manager_back(ada: User) -> None:
    manager = register(ada)
    silence(manager, seconds=60)
    expire()
    record_beat(Beat(manager.pk, 0, ManagerState.CLEANUP), ttl_s=120)
    assert NodeManager.objects.get(pk=manager.pk).state is ManagerState.CLEANUP
    assert expire() == []


def test_a_heartbeat_of_an_older_session_renews_nothing(ada: User) -> None:
    manager = register(ada)
    with pytest.raises(Superseded):
        record_beat(Beat(manager.pk, 7, ManagerState.IDLE), ttl_s=120)


def test_when_a_third_of_the_fleet_falls_silent_the_sweep_waits_one_more_lease(
    ada: User,
) -> None:
    fleet = [register(ada) for _ in range(10)]
    silence(*fleet[:4], seconds=10)
    assert expire() == []
    silence(*fleet[:4], seconds=120)
    assert len(expire()) == 4


def test_nothing_expires_while_no_coordinator_takes_heartbeats(ada: User) -> None:
    manager = register(ada)
    silence(manager, seconds=600)
    hour_ago = timezone.now() - timedelta(hours=1)
    IngestPresence.objects.create(id=1, up_since=hour_ago, seen_at=hour_ago)
    assert sweeps.run_sweep("managers.expire") == 0, "nobody took heartbeats"
    IngestPresence.objects.update(seen_at=timezone.now())
    assert sweeps.run_sweep("managers.expire") == 1


def test_a_host_that_fails_what_succeeds_elsewhere_is_quarantined_and_probed(ada: User) -> None:
    suite, bad, good = make_suite(ada), register(ada), register(ada)
    for _ in range(2):
        failed_here_succeeded_elsewhere(bad, good, suite)
    assert quarantine.quarantine_suspects() == []
    failed_here_succeeded_elsewhere(bad, good, suite)
    assert quarantine.quarantine_suspects() == [bad.pk]
    assert quarantine.quarantine_suspects() == []
    node = NodeManager.objects.select_related("runner").get(pk=bad.pk)
    assert node.runner.desired_state is DesiredState.QUARANTINED
    assert "3 tasks" in node.wish_reason
    assert quarantine.probe_quarantined() == []
    age("node_managers", f"runner_id = {bad.pk}", probe_after=601)
    assert quarantine.probe_quarantined() == [bad.pk]
    bad.refresh_from_db()
    assert bad.desired_state is DesiredState.ACTIVE
    assert quarantine.quarantine_suspects() == [], "old evidence does not count twice"


def test_on_probation_one_more_failure_is_enough_and_costs_twice_the_time(ada: User) -> None:
    suite, bad, good = make_suite(ada), register(ada), register(ada)
    for _ in range(3):
        failed_here_succeeded_elsewhere(bad, good, suite)
    quarantine.quarantine_suspects()
    age("node_managers", f"runner_id = {bad.pk}", probe_after=601)
    quarantine.probe_quarantined()
    failed_here_succeeded_elsewhere(bad, good, suite)
    assert quarantine.quarantine_suspects() == [bad.pk]
    node = NodeManager.objects.get(pk=bad.pk)
    assert node.quarantine_count == 2
    assert node.probe_after is not None
    assert node.wish_at is not None
    assert 1150 < (node.probe_after - node.wish_at).total_seconds() < 1250


def test_a_probation_without_trouble_ends(ada: User) -> None:
    manager = register(ada)
    wishes.quarantine_manager(actor=SYSTEM, runner=manager, reason="a test", probe_after_s=1)
    age("node_managers", f"runner_id = {manager.pk}", probe_after=2)
    assert quarantine.probe_quarantined() == [manager.pk]
    age("node_managers", f"runner_id = {manager.pk}", probation_until=601)
    quarantine.probe_quarantined()
    node = NodeManager.objects.get(pk=manager.pk)
    assert (node.probation_until, node.quarantine_count) == (None, 0)


def test_a_quarantined_host_gets_nothing(ada: User) -> None:
    suite, manager = make_suite(ada), register(ada)
    submit(suite)
    connect(manager)
    wishes.quarantine_manager(actor=SYSTEM, runner=manager, reason="a test")
    assert run_pass().engaged == []
    wishes.release_manager(actor=SYSTEM, runner=manager)
    assert len(run_pass().engaged) == 1


def test_the_coordinator_sweeps_only_what_beat_left_undone(ada: User) -> None:
    assert sorted(sweeps.run_due_sweeps()) == sorted(one.name for one in sweeps.SWEEPS)
    assert sweeps.run_due_sweeps() == []
    age("sweep_runs", "name = 'suites.close_idle'", last_run_at=11)
    assert sweeps.run_due_sweeps() == ["suites.close_idle"]
    assert SweepRun.objects.count() == len(sweeps.SWEEPS)


def test_two_sweepers_at_once_do_the_work_once(
    ada: User, in_threads: Callable[..., list[int]]
) -> None:
    suite = make_suite(ada)
    fleet = [register(ada) for _ in range(8)]
    submit(suite, 32)
    connect(*fleet)
    results = in_threads(4, lambda: sweeps.run_sweep("managers.schedule"))
    assert sum(results) == 8
    assert all(engagement_of(one) is not None for one in fleet)


@pytest.fixture
def in_threads() -> Callable[..., list[int]]:
    """Runs a call in several threads, each with a connection of its own."""

    def run(count: int, call: Callable[[], int]) -> list[int]:
        results: list[int] = []
        start = threading.Barrier(count)

        def work() -> None:
            try:
                start.wait(timeout=10)
                results.append(call())
            finally:
                connections.close_all()

        threads = [threading.Thread(target=work) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert len(results) == count
        return results

    return run


def test_the_configuration_is_versioned_and_checked() -> None:
    before = read_config().version
    changed = change_config(actor=SYSTEM, changes={"lease_duration_s": 7200}, lease_ttl_s=120)
    assert (changed.version, changed.lease_duration_s) == (before + 1, 7200)
    for changes in ({"heartbeat_s": 31}, {"lease_duration_s": 0}, {"colour": 1}, {}):
        with pytest.raises(InvalidInput, match=next(iter(changes), "changes")):
            change_config(actor=SYSTEM, changes=changes, lease_ttl_s=120)


def test_the_roll_out_switch_refuses_new_suites_with_a_reason() -> None:
    require_suites_enabled()
    change_config(actor=SYSTEM, changes={"suites_enabled": False}, lease_ttl_s=120)
    with pytest.raises(Conflict, match="switched off"):
        require_suites_enabled()
