"""A suite that is cancelled, paused, scaled or ended while the agent works for it."""

import pytest

from mitosis_protocol import from_manager as fm
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import AssignmentState, ManagerState
from mitosis_protocol.specs import WorkerSchedule
from nodeagent import effects as fx
from nodeagent import events
from nodeagent.core.model import Step
from tests.fakes.agent_coordinator import AgentCoordinator
from tests.fakes.agent_host import AgentHost
from tests.fakes.agent_suites import make_suite


@pytest.fixture
def slow() -> AgentHost:
    """A host that prepares as far as the test lets it."""
    return AgentHost(is_auto=False)


def to_preparing(slow: AgentHost, **members: object) -> AgentCoordinator:
    coordinator = AgentCoordinator(slow)
    coordinator.boot()
    coordinator.connect()
    coordinator.assign(make_suite(**members))
    slow.do(slow.later.pop())  # the slots are planned
    slow.do(slow.later.pop())  # the debt is written
    assert slow.step is Step.PREPARING
    return coordinator


def drain(coordinator: AgentCoordinator, reason: str = "done") -> None:
    engaged = coordinator.engagement
    assert engaged is not None
    coordinator.host.frame(
        tm.SuiteDrained(
            assignment_id=engaged.assignment_id, suite_uuid=engaged.suite_uuid, reason=reason
        )
    )


def test_a_suite_cancelled_while_it_is_prepared_stops_the_hook_and_cleans_up(slow: AgentHost):
    coordinator = to_preparing(slow)
    assert coordinator.suite is not None
    slow.frame(
        tm.CancelSuite(suite_uuid=coordinator.suite.uuid, reason="user", cancel_running_tasks=True)
    )
    assert slow.taken(fx.CancelHook)
    slow.is_auto = True
    slow.do(slow.later.pop())
    assert slow.cleanups == [1]
    [done] = coordinator.acknowledge()
    assert isinstance(done, fm.SuiteCompleted)


def test_a_suite_cancelled_before_its_hook_began_needs_no_cleanup(slow: AgentHost):
    coordinator = AgentCoordinator(slow)
    coordinator.boot()
    coordinator.connect()
    coordinator.assign(make_suite())
    slow.do(slow.later.pop())
    drain(coordinator)
    slow.is_auto = True
    slow.do(slow.later.pop())
    assert not slow.taken(fx.RunHook)
    assert not slow.debts
    assert len(coordinator.acknowledge()) == 1


@pytest.mark.parametrize("is_hard", [True, False])
def test_a_cancelled_suite_stops_running_tasks_only_if_asked(
    host: AgentHost, coordinator: AgentCoordinator, is_hard: bool
):
    coordinator.start(make_suite(1, 1))
    coordinator.give(1, 2)
    assert coordinator.suite is not None
    uuid = coordinator.suite.uuid
    host.frame(tm.CancelSuite(suite_uuid=uuid, reason="user", cancel_running_tasks=is_hard))
    assert coordinator.take_back() == [2]
    stopped = [one.message for one in host.taken(fx.Publish)]
    assert [getattr(one, "attempt_id", None) for one in stopped] == ([1] if is_hard else [])
    host.finish(host.key())
    assert host.cleanups == [1]


def test_a_paused_suite_gives_back_what_waits_and_lets_run_what_runs(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1, 2))
    coordinator.give(1, 2, 3)
    assert coordinator.suite is not None
    host.sent(fm.FetchTasks)
    host.frame(tm.Pause(suite_uuid=coordinator.suite.uuid))
    assert [one.is_serving for one in host.taken(fx.SetServing)] == [False]
    assert coordinator.take_back() == [3, 2]
    host.finish(host.key())
    host.wait(20)
    assert not host.sent(fm.FetchTasks)
    host.frame(tm.Resume(suite_uuid=coordinator.suite.uuid))
    assert [one.is_serving for one in host.taken(fx.SetServing)] == [True]
    assert [one.max_tasks for one in host.sent(fm.FetchTasks)] == [3]


def test_a_host_whose_disk_is_full_takes_nothing_until_there_is_room_again(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1, 2))
    coordinator.give(1, 2, 3)
    host.sent(fm.FetchTasks)
    host.do(events.DiskNoted("disk full: 3 MiB left"))
    assert [one.is_serving for one in host.taken(fx.SetServing)] == [False]
    assert coordinator.take_back() == [3, 2], "another host can keep their results"
    host.finish(host.key())
    host.wait(20)
    assert not host.sent(fm.FetchTasks)
    host.do(events.DiskNoted())
    assert [one.is_serving for one in host.taken(fx.SetServing)] == [True]
    assert host.sent(fm.FetchTasks)


def test_a_pause_is_also_learnt_from_a_heartbeat(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(1))
    assert coordinator.suite is not None
    coordinator.engage(coordinator.suite, is_paused=True)
    host.wait(31)
    coordinator.beat()
    assert [one.is_serving for one in host.taken(fx.SetServing)] == [False]


def test_an_engagement_in_cleanup_is_left_when_a_heartbeat_says_so(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    assert coordinator.suite is not None
    coordinator.engage(coordinator.suite, state=AssignmentState.CLEANUP, release_reason="drain")
    host.wait(31)
    coordinator.beat()
    assert host.core.state is ManagerState.CLEANUP


def test_a_suite_scaled_up_gets_workers_and_scaled_down_loses_them_after_their_task(
    host: AgentHost, coordinator: AgentCoordinator
):
    suite = make_suite(2)
    coordinator.start(suite)
    coordinator.give(1, 2)
    more = make_suite(uuid=suite.uuid, worker_schedule=WorkerSchedule(3))
    coordinator.assign(more)
    assert set(host.workers) == {0, 1, 2}
    coordinator.assign(make_suite(uuid=suite.uuid, worker_schedule=WorkerSchedule(1)))
    assert set(host.workers) == {0, 1}, "the idle one leaves at once"
    host.finish(host.key(1))
    assert set(host.workers) == {0}
    assert host.core.model.ready_count == 1


def test_a_crash_that_is_kept_while_the_suite_is_left_goes_back_instead(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    drain(coordinator)
    host.die(host.key(), signal=11)
    host.flush()
    coordinator.accept(action="keep")
    assert not host.shelf
    assert coordinator.take_back() == [1]


def test_the_end_of_a_suite_is_told_after_its_results(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    drain(coordinator)
    host.finish(host.key())
    host.flush()
    assert not host.sent(fm.SuiteCompleted)
    coordinator.accept(action="end")
    [done] = coordinator.acknowledge()
    assert isinstance(done, fm.SuiteCompleted)
    assert done.tasks_completed == 1


def test_a_result_that_is_not_answered_does_not_hold_the_host_back(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    drain(coordinator)
    host.finish(host.key())
    host.wait(11)
    assert len(coordinator.acknowledge()) == 1
    assert host.core.state is ManagerState.IDLE
    assert host.outbox
