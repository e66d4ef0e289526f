"""Hello, welcome, heartbeats, leases and lost links in the agent's core."""

from uuid import UUID

import pytest

from mitosis_protocol import from_manager as fm
from mitosis_protocol import ipc
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import AssignmentState, DesiredState, ManagerState, PartitionPolicy
from mitosis_protocol.manager_reports import TaskReport
from nodeagent import effects as fx
from nodeagent import events as ev
from nodeagent.core.attempts import Stage
from nodeagent.core.model import Step
from tests.fakes.agent_coordinator import AgentCoordinator
from tests.fakes.agent_host import AgentHost
from tests.fakes.agent_suites import MANAGER, make_suite


def test_the_first_hello_of_a_process_is_clean_and_later_ones_are_not(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.boot()
    host.do(ev.LinkUp(MANAGER))
    host.do(ev.LinkLost())
    host.sent(fm.Hello)
    first = coordinator.connect()
    assert first.is_clean
    assert first.suite_uuid is None
    host.do(ev.LinkLost())
    assert not coordinator.connect().is_clean


def test_results_of_an_earlier_life_are_named_and_sent_again(
    host: AgentHost, coordinator: AgentCoordinator
):
    op_id = UUID(int=5)
    line = TaskReport(task_id=9, op="commit", op_id=op_id)
    host.outbox[op_id] = line
    coordinator.boot(ev.Booted(results=(line,)))
    hello = coordinator.connect(held=tm.Reconciliation(kept=[9]))
    assert hello.inventory == [9]
    assert coordinator.accept(action="end") == [line]
    assert not host.outbox


def test_a_crash_of_an_earlier_life_that_is_kept_is_left_to_the_next_inventory(
    host: AgentHost, coordinator: AgentCoordinator
):
    op_id = UUID(int=5)
    line = TaskReport(task_id=9, op="failure", op_id=op_id)
    host.outbox[op_id] = line
    coordinator.boot(ev.Booted(results=(line,)))
    coordinator.connect(held=tm.Reconciliation(kept=[9]))
    coordinator.accept(action="keep")
    host.wait(31)
    assert host.sent(fm.Heartbeat)[-1].inventory == []


def test_work_goes_on_without_a_link_and_everything_is_reported_afterwards(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1, 2))
    coordinator.give(1, 2, 3)
    host.do(ev.LinkLost("cut"))
    host.unread.clear()
    host.finish(host.key())
    host.finish(host.key())
    host.wait(200)
    assert not host.sent(fm.ReportTasks)
    assert host.hands[host.key()] == 3
    hello = coordinator.connect(held=tm.Reconciliation(kept=[1, 2, 3]))
    assert hello.inventory == [1, 2, 3]
    assert hello.suite_uuid == coordinator.suite.uuid
    lines = coordinator.accept(action="end")
    assert [(one.op, one.task_id) for one in lines] == [("start", 3), ("commit", 1), ("commit", 2)]
    assert not host.outbox


def test_a_welcome_says_what_became_of_each_attempt(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(4))
    coordinator.give(1, 2, 3, 4)
    host.finish(host.key(3))
    host.do(ev.LinkLost())
    host.unread.clear()
    held = tm.Reconciliation(kept=[1], cancel=[2], revoked=[3], settled=[4])
    coordinator.connect(held=held)
    stops = {one.message.attempt_id: one.message.why for one in host.taken(fx.Publish)}
    assert stops == {2: "cancelled", 3: "revoked"}
    assert not host.outbox, "what was settled is forgotten"
    assert host.core.model.completed_count == 1
    assert host.core.model.ledger.inventory(10) == [1, 2]


def test_an_attempt_said_to_be_missing_that_is_here_is_named_at_once(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.wait(31)
    coordinator.beat(held=tm.Reconciliation(missing=[1]))
    assert host.sent(fm.Heartbeat)[-1].inventory == [1]
    assert not host.taken(fx.Publish)


def test_a_suite_that_was_taken_away_meanwhile_is_cleaned_up(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    host.do(ev.LinkLost())
    coordinator.release()
    coordinator.connect()
    assert host.core.state is ManagerState.CLEANUP
    assert host.cleanups == [1]


def test_another_suite_given_meanwhile_is_taken_up_after_the_cleanup(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    host.do(ev.LinkLost())
    other = make_suite(1)
    coordinator.engage(other, 2, AssignmentState.ASSIGNED)
    coordinator.connect()
    coordinator.acknowledge()
    assert host.cleanups == [1]
    assert host.preparations == [1, 2]


def test_a_host_that_is_taken_on_again_goes_on_under_the_new_engagement(
    host: AgentHost, coordinator: AgentCoordinator
):
    suite = make_suite(1)
    coordinator.start(suite)
    coordinator.give(1)
    host.do(ev.LinkLost())
    coordinator.engage(suite, 7)
    coordinator.connect(held=tm.Reconciliation(adopted=[1]))
    assert coordinator.beat().assignment_id == 7
    assert host.preparations == [1]
    assert host.step is Step.EXECUTING
    host.frame(tm.SuiteDrained(assignment_id=7, suite_uuid=suite.uuid, reason="done"))
    host.finish(host.key())
    assert host.cleanups == [1]
    host.flush()
    coordinator.accept(action="end")
    assert coordinator.acknowledge()[0].assignment_id == 7


def test_an_answer_to_a_heartbeat_of_before_the_assignment_does_not_end_it(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.boot()
    coordinator.connect()
    idle = host.sent(fm.Heartbeat)[-1]
    coordinator.assign(make_suite(1))
    assert idle.request_id is not None
    host.frame(
        tm.HeartbeatAck(
            request_id=idle.request_id,
            lease="2m",
            config_version=1,
            desired_state=DesiredState.ACTIVE,
        )
    )
    assert host.step is Step.EXECUTING


def test_a_hello_without_an_answer_is_said_again(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.boot()
    host.do(ev.LinkUp(MANAGER))
    [hello] = host.sent(fm.Hello)
    host.do(ev.RequestTimedOut(hello.request_id))
    host.wait(1.5)
    assert len(host.sent(fm.Hello)) == 1


def test_on_partition_stop_ends_what_runs_before_the_lease_does(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1, 1, on_partition=PartitionPolicy.STOP))
    coordinator.give(1, 2)
    host.do(ev.LinkLost())
    host.wait(95)
    assert not host.taken(fx.Publish)
    host.wait(10)
    [stop] = host.taken(fx.Publish)
    assert stop.message == ipc.CancelTask(attempt_id=1, why="revoked")
    assert not host.shelf
    assert not host.is_serving
    host.ask(host.key(), ipc.DropTask, attempt_id=1, has_started=True)
    assert not host.outbox
    assert coordinator.connect().inventory == []
    assert host.is_serving


def test_on_partition_keep_lets_everything_run(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(1, 1))
    coordinator.give(1, 2)
    host.do(ev.LinkLost())
    host.wait(500)
    assert not host.taken(fx.Publish)
    host.finish(host.key())
    assert host.hands[host.key()] == 2


def test_the_lease_counts_from_the_sending_of_the_heartbeat(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    host.wait(30)
    sent_at = host.now
    host.now += 7
    coordinator.beat()
    assert host.core.model.session.lease_until == pytest.approx(sent_at + 120)


def test_a_new_configuration_changes_the_interval(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.boot()
    coordinator.connect()
    host.sent(fm.Heartbeat)
    host.frame(tm.ConfigUpdate(heartbeat_interval="2s", version=5))
    host.frame(tm.ConfigUpdate(heartbeat_interval="9s", version=4))
    host.wait(5)
    beats = host.sent(fm.Heartbeat)
    assert len(beats) == 2
    assert beats[-1].config_version == 5


@pytest.mark.parametrize("desired", [DesiredState.DRAINING, DesiredState.QUARANTINED])
def test_a_host_that_is_not_wanted_gives_back_what_waits_and_fetches_nothing(
    host: AgentHost, coordinator: AgentCoordinator, desired: DesiredState
):
    coordinator.start(make_suite(1, 1))
    coordinator.give(1, 2)
    host.wait(31)
    coordinator.beat(desired_state=desired)
    assert coordinator.take_back() == [2]
    host.sent(fm.FetchTasks)
    host.finish(host.key())
    host.wait(20)
    assert not host.sent(fm.FetchTasks)


def test_a_returned_task_whose_answer_got_lost_is_returned_again(
    host: AgentHost, coordinator: AgentCoordinator
):
    suite = make_suite(1, 1)
    coordinator.start(suite)
    coordinator.give(1, 2)
    host.frame(tm.Pause(suite_uuid=suite.uuid))
    host.do(ev.LinkLost())
    host.sent(fm.ReturnTasks)
    assert host.core.model.ledger.attempts[2].stage is Stage.RETURNING
    coordinator.engage(suite, is_paused=True)
    assert coordinator.connect(held=tm.Reconciliation(kept=[1, 2])).inventory == [1, 2]
    assert coordinator.take_back() == [2]


def test_the_time_of_running_counts_from_the_start_of_the_process(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.boot()
    coordinator.connect()
    host.wait(90)
    assert host.sent(fm.Heartbeat)[-1].metrics.uptime_seconds == 90
