"""The RFC's life of a manager (9.2, 9.3), row by row, in the agent's core."""

from uuid import uuid4

import pytest

from mitosis_protocol import from_manager as fm
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import ManagerState
from nodeagent import effects as fx
from nodeagent import events as ev
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


def test_an_idle_manager_beats_every_interval(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.boot()
    coordinator.connect(heartbeat_interval="5s")
    assert coordinator.beat().state is ManagerState.IDLE
    host.wait(16)
    beats = host.sent(fm.Heartbeat)
    assert len(beats) == 3
    assert all(one.assignment_id is None and one.inventory == [] for one in beats)


def test_an_assigned_suite_is_prepared_only_after_its_cleanup_is_owed(slow: AgentHost):
    coordinator = AgentCoordinator(slow)
    coordinator.boot()
    coordinator.connect()
    coordinator.assign(make_suite())
    assert slow.core.state is ManagerState.PREPARING
    assert [type(one) for one in slow.later] == [ev.SlotsPlanned]
    slow.do(slow.later.pop())
    assert slow.taken(fx.OweCleanup)
    assert not slow.taken(fx.RunHook)
    slow.do(slow.later.pop())
    [hook] = slow.taken(fx.RunHook)
    assert hook.phase == "preparation"
    assert slow.sent(fm.Heartbeat)[-1].state is ManagerState.PREPARING


def test_a_prepared_host_spawns_its_workers_and_says_that_it_executes(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(3))
    assert len(host.taken(fx.SpawnWorker)) == 3
    assert host.core.state is ManagerState.EXECUTING
    assert host.core.model.ready_count == 3


def test_nothing_is_fetched_before_the_coordinator_has_heard_that_we_execute(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.boot()
    coordinator.connect()
    coordinator.assign(make_suite(2))
    assert not host.sent(fm.FetchTasks)
    coordinator.beat()
    assert [one.max_tasks for one in host.sent(fm.FetchTasks)] == [2]


@pytest.mark.parametrize("kind", ["command", "timeout", "network"])
def test_a_preparation_that_fails_is_reported_cleaned_up_and_left(slow: AgentHost, kind):
    coordinator = to_preparing(slow)
    slow.later.clear()
    slow.do(ev.HookDone(1, "preparation", kind, exit_code=3, stderr_tail="no space"))
    [failed] = slow.sent(fm.SuiteFailed)
    assert (failed.phase, failed.trouble, failed.exit_code) == ("preparation", kind, 3)
    assert failed.stderr_tail == "no space"
    slow.do(slow.later.pop())  # the slots are released
    [cleanup] = slow.taken(fx.RunHook)[1:]
    assert cleanup.phase == "cleanup"
    slow.do(slow.later.pop())
    # The failure first: a completion that overtook it would hide it.
    assert not slow.sent(fm.SuiteCompleted)
    assert failed.request_id is not None
    slow.frame(tm.SuiteReportAck(request_id=failed.request_id, success=True))
    assert len(coordinator.acknowledge()) == 1
    assert slow.core.state is ManagerState.IDLE
    assert not slow.debts


def test_limits_that_cannot_be_enforced_fail_the_suite_without_any_hook(slow: AgentHost):
    coordinator = AgentCoordinator(slow)
    coordinator.boot()
    coordinator.connect()
    coordinator.assign(make_suite())
    slow.later.clear()
    slow.do(ev.SlotsRefused(1, "no memory controller"))
    letters = coordinator.acknowledge()
    assert isinstance(letters[0], fm.SuiteFailed)
    assert (letters[0].trouble, letters[0].stderr_tail) == ("limits", "no memory controller")
    assert isinstance(letters[1], fm.SuiteCompleted)
    assert not slow.taken(fx.RunHook)
    assert slow.core.state is ManagerState.IDLE


def test_a_debt_that_cannot_be_written_stops_the_preparation(slow: AgentHost):
    coordinator = AgentCoordinator(slow)
    coordinator.boot()
    coordinator.connect()
    coordinator.assign(make_suite())
    slow.do(slow.later.pop())
    slow.later.clear()
    slow.do(ev.DebtOwed(1, "read-only file system"))
    assert not slow.taken(fx.RunHook)
    assert slow.sent(fm.SuiteFailed)[0].phase == "preparation"


def test_limits_a_worker_cannot_enforce_fail_the_suite(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.boot()
    coordinator.connect()
    host.is_auto = False
    coordinator.assign(make_suite(1))
    for _ in range(3):
        host.do(host.later.pop(0))
    host.do(ev.WorkerReady(host.key(), 1, "no pids controller"))
    [failed] = host.sent(fm.SuiteFailed)
    assert (failed.trouble, failed.stderr_tail) == ("limits", "no pids controller")


def test_a_drained_suite_is_cleaned_up_and_completed_with_its_numbers(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(2))
    coordinator.give(1, 2)
    host.finish(host.key(0))
    host.finish(host.key(1), exit_status=256)
    host.flush()
    coordinator.accept(action="end")
    drain(coordinator)
    assert host.core.state is ManagerState.CLEANUP
    assert not host.workers
    assert host.cleanups == [1]
    [done] = coordinator.acknowledge()
    assert isinstance(done, fm.SuiteCompleted)
    assert (done.tasks_completed, done.tasks_failed) == (1, 1)
    assert host.core.state is ManagerState.IDLE
    assert host.sent(fm.Heartbeat)[-1].assignment_id is None


def test_what_runs_is_finished_before_the_workers_leave(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(2, 2))
    coordinator.give(1, 2, 3, 4)
    drain(coordinator)
    assert host.step is Step.DRAINING
    assert coordinator.take_back() == [4, 3]
    assert not host.taken(fx.DismissWorker)
    host.finish(host.key(0))
    assert host.step is Step.DRAINING
    host.finish(host.key(1))
    assert host.core.state is ManagerState.CLEANUP
    assert not host.workers


def test_a_worker_that_does_not_leave_is_killed_after_30_seconds(slow: AgentHost):
    coordinator = AgentCoordinator(slow)
    slow.is_auto = True
    coordinator.start(make_suite(1))
    slow.is_auto = False
    slow.parked.clear()  # deaf: it will not hear that it may leave
    drain(coordinator)
    slow.wait(29)
    assert not slow.taken(fx.KillWorker)
    slow.wait(2)
    assert slow.taken(fx.KillWorker)


def test_a_cleanup_that_fails_is_reported_and_never_blocks(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    host.is_auto = False
    drain(coordinator)
    while not any(isinstance(one, ev.HookDone) for one in host.later):
        host.do(host.later.pop(0))
    host.later.clear()
    host.do(ev.HookDone(1, "cleanup", "command", exit_code=7, stderr_tail="busy"))
    [failed] = coordinator.acknowledge()
    assert isinstance(failed, fm.SuiteFailed)
    assert (failed.phase, failed.exit_code) == ("cleanup", 7)
    assert host.core.state is ManagerState.IDLE
    assert not host.debts
    assert any(one.event == "cleanup.degraded" for one in host.taken(fx.Note))


def test_the_next_suite_waits_until_this_one_is_cleaned_up(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    host.is_auto = False
    drain(coordinator)
    coordinator.assign(make_suite(1), assignment_id=2)
    assert host.core.model.engagement is not None
    assert host.core.model.engagement.assignment_id == 1
    host.is_auto = True
    host.do(host.later.pop(0))
    coordinator.acknowledge()
    assert host.core.model.engagement.assignment_id == 2
    assert host.preparations == [1, 2]
    assert host.cleanups == [1]


def test_an_old_offer_that_comes_late_changes_nothing(
    host: AgentHost, coordinator: AgentCoordinator
):
    old = make_suite(1)
    coordinator.start(old, assignment_id=1)
    drain(coordinator)
    coordinator.acknowledge()
    coordinator.assign(old, assignment_id=1)
    assert host.core.state is ManagerState.IDLE
    assert host.preparations == [1]


def test_a_debt_of_an_earlier_life_is_paid_before_new_work(host: AgentHost):
    host.is_auto = False
    host.debts.add(9)
    coordinator = AgentCoordinator(host)
    coordinator.boot(ev.Booted(debts=(ev.OwedCleanup(9, uuid4()),)))
    [hook] = host.taken(fx.RunHook)
    assert (hook.assignment_id, hook.phase, hook.suite) == (9, "cleanup", None)
    coordinator.connect()
    assert host.sent(fm.Heartbeat)[-1].state is ManagerState.CLEANUP
    coordinator.assign(make_suite(1), assignment_id=10)
    assert not host.taken(fx.PlanSlots)
    host.do(host.later.pop())
    assert not host.debts
    assert [one.assignment_id for one in host.taken(fx.PlanSlots)] == [10]
