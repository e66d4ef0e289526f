"""One task's way through the agent's core: handed out, reported, settled, cancelled."""

from uuid import UUID

import pytest

from mitosis_protocol import from_manager as fm
from mitosis_protocol import ipc
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import Outcome, ReportAnswer
from nodeagent import effects as fx
from nodeagent import events as ev
from nodeagent.core.attempts import Stage
from tests.fakes.agent_coordinator import AgentCoordinator
from tests.fakes.agent_host import AgentHost
from tests.fakes.agent_suites import make_suite


def stage(host: AgentHost, attempt_id: int) -> Stage | None:
    attempt = host.core.model.ledger.attempts.get(attempt_id)
    return None if attempt is None else attempt.stage


def test_a_task_runs_and_is_reported_from_the_outbox(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.sent(fm.FetchTasks)
    answer = host.finish(host.key(), outcome=Outcome.SUCCEEDED, facts={"wall_s": 0.1})
    assert isinstance(answer, ipc.Done)
    [stored] = host.outbox.values()
    assert (stored.op, stored.task_id, stored.result) == ("commit", 1, {"wall_s": 0.1})
    assert not host.sent(fm.ReportTasks), "it waits for company"
    host.flush()
    [line] = coordinator.accept(action="end")
    assert line == stored
    assert not host.outbox
    assert stage(host, 1) is None
    assert host.core.model.completed_count == 1


def test_a_crash_that_is_kept_runs_again_before_everything_else(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1, 2))
    coordinator.give(1, 2, 3)
    host.ask(host.key(), ipc.CrashTask, attempt_id=1, signal=11, reason="segmentation fault")
    host.let_go(host.key())
    host.flush()
    [line] = coordinator.accept(action="keep")
    assert (line.op, line.signal, line.worker_local_id) == ("failure", 11, 0)
    assert [one.task.task_id for one in host.shelf] == [1, 2, 3]
    host.fetch(host.key())
    assert host.hands[host.key()] == 1


@pytest.mark.parametrize("action", ["requeue", "end"])
def test_a_crash_that_is_not_kept_is_forgotten(
    host: AgentHost, coordinator: AgentCoordinator, action: str
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.die(host.key(), signal=11)
    host.flush()
    [line] = coordinator.accept(action=action)
    assert line.op == "failure"
    assert stage(host, 1) is None
    assert not host.shelf


@pytest.mark.parametrize(("code", "signal"), [(0, None), (1, None), (None, 15), (None, 11)])
def test_any_exit_without_a_report_is_a_failure(
    host: AgentHost, coordinator: AgentCoordinator, code: int | None, signal: int | None
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.die(host.key(), code=code, signal=signal)
    [line] = host.outbox.values()
    assert (line.op, line.signal) == ("failure", signal)
    assert "without a report" in line.reason


def test_a_crash_whose_decision_got_lost_is_decided_by_the_next_inventory(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.die(host.key(), signal=11)
    host.flush()
    host.sent(fm.Heartbeat)
    coordinator.accept(ReportAnswer.OK_DUPLICATE)
    assert stage(host, 1) is Stage.DECIDING
    beat = coordinator.beat(held=tm.Reconciliation(kept=[1]))
    assert beat.inventory == [1]
    assert stage(host, 1) is Stage.HANDED, "on the shelf and taken again"


def test_a_crash_that_was_cancelled_while_its_decision_got_lost_is_given_back(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.die(host.key(), signal=11)
    host.flush()
    host.frame(tm.CancelTask(task_uuid=UUID(int=1), reason="user"))
    coordinator.accept(ReportAnswer.OK_DUPLICATE)
    host.do(ev.Tick())
    [back] = host.sent(fm.ReturnTasks)
    assert back.task_ids == [1]


def test_a_last_try_waits_for_leave_to_start(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(1))
    coordinator.give(1, max_failures=1)
    assert host.taken(fx.PutOnShelf)[0].items[0].needs_permit
    token = host.ask_only(host.key(), ipc.StartTask, attempt_id=1)
    assert token not in host.answers
    [line] = coordinator.accept()
    assert line.op == "start"
    assert host.answers[token] == ipc.StartReply(request_id=token.request_id, may_run=True)


def test_leave_to_start_is_asked_again_after_a_lost_link(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1, max_failures=1)
    token = host.ask_only(host.key(), ipc.StartTask, attempt_id=1)
    host.do(ev.LinkLost())
    assert token not in host.answers
    host.sent(fm.ReportTasks)
    coordinator.connect(held=tm.Reconciliation(kept=[1]))
    coordinator.accept()
    assert isinstance(host.answers[token], ipc.StartReply)


def test_a_start_that_is_cancelled_does_not_run(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(1))
    coordinator.give(1, max_failures=1)
    token = host.ask_only(host.key(), ipc.StartTask, attempt_id=1)
    [frame] = host.sent(fm.ReportTasks)
    result = tm.ReportResult(task_id=1, answer=ReportAnswer.OK, is_cancelled=True)
    host.frame(tm.ReportsAccepted(request_id=frame.request_id, results=[result]))
    assert host.answers[token] == ipc.StartReply(request_id=token.request_id, may_run=False)


def test_a_stale_start_revokes_the_attempt(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.flush()
    coordinator.accept(ReportAnswer.STALE_ATTEMPT)
    [stop] = host.taken(fx.Publish)
    assert stop.message == ipc.CancelTask(attempt_id=1, why="revoked")
    answer = host.ask(host.key(), ipc.DropTask, attempt_id=1, has_started=True)
    assert isinstance(answer, ipc.Done)
    assert not host.outbox
    assert stage(host, 1) is None


def test_a_running_task_is_cancelled_by_its_uuid(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.frame(tm.CancelTask(task_uuid=UUID(int=1), reason="user"))
    host.frame(tm.CancelTask(task_uuid=UUID(int=1), reason="user"))
    [stop] = host.taken(fx.Publish)
    assert stop.message == ipc.CancelTask(attempt_id=1, why="cancelled")
    host.finish(host.key(), exit_status=9, outcome=Outcome.CANCELLED)
    [line] = host.outbox.values()
    assert line.outcome is Outcome.CANCELLED


def test_a_worker_that_does_not_let_go_of_a_cancelled_task_is_killed(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.frame(tm.CancelTask(task_uuid=UUID(int=1), reason="user"))
    host.wait(31)
    assert host.taken(fx.KillWorker)
    [line] = host.outbox.values()
    assert line.op == "failure"


def test_a_worker_that_missed_a_cancel_hears_it_again_with_its_heartbeat(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.frame(tm.CancelTask(task_uuid=UUID(int=1), reason="user"))
    host.taken(fx.Publish)
    host.ask(host.key(), ipc.Heartbeat, attempt_id=1)
    assert host.taken(fx.Publish)


def test_a_waiting_task_that_is_cancelled_goes_back(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(1, 1))
    coordinator.give(1, 2)
    host.frame(tm.CancelTask(task_uuid=UUID(int=2), reason="user"))
    assert coordinator.take_back() == [2]
    assert not host.taken(fx.Publish)


def test_a_dropped_task_that_never_started_is_handed_out_again(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(2))
    coordinator.give(1)
    host.ask(host.key(), ipc.DropTask, attempt_id=1, has_started=False)
    assert host.hands[host.key(1)] == 1
