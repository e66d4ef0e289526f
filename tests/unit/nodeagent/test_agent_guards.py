"""Guards of the agent's core that nothing else leans on: each one fails when its guard is gone."""

from mitosis_protocol import from_manager as fm
from mitosis_protocol import ipc
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import ReportAnswer
from nodeagent import effects as fx
from nodeagent import events as ev
from nodeagent.core.attempts import Stage
from nodeagent.failures import ExitReason
from tests.fakes.agent_coordinator import AgentCoordinator
from tests.fakes.agent_host import AgentHost
from tests.fakes.agent_suites import make_suite


def stage(host: AgentHost, attempt_id: int) -> Stage | None:
    attempt = host.core.model.ledger.attempts.get(attempt_id)
    return None if attempt is None else attempt.stage


def test_lines_that_a_short_answer_leaves_out_are_said_again(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(2))
    coordinator.give(1, 2)
    for slot in (0, 1):
        host.finish(host.key(slot))
    host.flush()
    [frame] = host.sent(fm.ReportTasks)
    said = [line for line in frame.reports if line.op == "commit"]
    assert len(said) == 2
    results = [
        tm.ReportResult(task_id=line.task_id, answer=ReportAnswer.OK, action="end")
        for line in frame.reports[:-1]
    ]
    host.frame(tm.ReportsAccepted(request_id=frame.request_id, results=results))
    host.wait(0.5)
    again = [line for line in coordinator.accept(action="end") if line.op == "commit"]
    assert again == [frame.reports[-1]]
    assert not host.outbox


def test_the_result_of_an_attempt_that_was_revoked_while_it_was_stored_is_not_sent(
    coordinator: AgentCoordinator,
):
    host = coordinator.host
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.flush()
    coordinator.accept()
    report = _stored_late(host)
    attempt = host.core.model.ledger.attempts[1]
    host.wait(31)
    coordinator.beat(tm.Reconciliation(revoked=[1]))
    assert attempt.wish == "revoked"
    host.outbox[report.op_id] = report
    host.do(ev.ResultStored(report.op_id))
    host.flush()
    assert [line for line in coordinator.accept() if line.op != "start"] == []
    assert not host.outbox
    assert stage(host, 1) is None


def test_a_worker_that_asks_again_without_a_report_has_lost_its_task(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    key = host.key()
    host.let_go(key)
    host.fetch(key)
    host.flush()
    lines = [line for line in coordinator.accept(action="end") if line.op != "start"]
    assert [(line.op, line.task_id) for line in lines] == [("failure", 1)]
    assert stage(host, 1) is None


def test_the_late_news_of_an_earlier_worker_does_not_touch_the_present_one(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    dead = host.key()
    host.die(dead, signal=9)
    host.flush()
    coordinator.accept(action="end")
    host.wait(31)
    coordinator.beat()
    present = host.key()
    assert present != dead
    coordinator.give(2)
    assert stage(host, 2) is Stage.HANDED
    # Heard a second time, or late: its slot has a new tenant by now.
    host.do(ev.WorkerExited(dead, ExitReason(signal=9)))
    assert stage(host, 2) is Stage.HANDED
    assert isinstance(host.finish(present), ipc.Done)


def test_a_crash_that_is_to_be_tried_again_is_not_if_it_was_revoked_meanwhile(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.flush()
    coordinator.accept()
    host.die(host.key(), signal=9)
    host.flush()
    [frame] = host.sent(fm.ReportTasks)
    # The lease has run out in between: stopped for good, whatever the answer says.
    host.core.model.ledger.attempts[1].wish = "revoked"
    host.taken(fx.PutOnShelf)
    results = [
        tm.ReportResult(task_id=line.task_id, answer=ReportAnswer.OK, action="keep")
        for line in frame.reports
    ]
    host.frame(tm.ReportsAccepted(request_id=frame.request_id, results=results))
    assert host.taken(fx.PutOnShelf) == []
    assert stage(host, 1) is None


def _stored_late(host: AgentHost):
    """The worker has reported, and the disk takes its time."""
    kept: list[fx.StoreResult] = []
    host._do_store_result = kept.append  # type: ignore[method-assign]
    key = host.key()
    host.ask_only(key, ipc.FinishTask, attempt_id=host.hands[key], exit_status=0)
    assert stage(host, 1) is Stage.STORING
    return kept[0].report
