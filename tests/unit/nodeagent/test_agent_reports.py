"""Lines of reports in the agent's core: stored, gathered, sent, repeated, settled."""

import pytest

from mitosis_protocol import from_manager as fm
from mitosis_protocol import ipc
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import ReportAnswer
from nodeagent import effects as fx
from nodeagent import events as ev
from nodeagent.core.attempts import Stage
from tests.fakes.agent_coordinator import AgentCoordinator
from tests.fakes.agent_host import AgentHost
from tests.fakes.agent_suites import make_suite


def stage(host: AgentHost, attempt_id: int) -> Stage | None:
    attempt = host.core.model.ledger.attempts.get(attempt_id)
    return None if attempt is None else attempt.stage


def test_the_start_is_reported_unless_the_result_goes_the_same_way(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(2))
    coordinator.give(1, 2)
    host.finish(host.key(0))
    host.flush()
    lines = coordinator.accept(action="end")
    assert [(one.op, one.task_id) for one in lines] == [("start", 2), ("commit", 1)]


def test_lines_wait_longer_for_company_while_tasks_wait_for_a_worker(
    host: AgentHost, coordinator: AgentCoordinator
):
    settings = host.core.model.settings
    coordinator.start(make_suite(1, 4))
    coordinator.give(1, 2)
    [flush] = host.taken(fx.ScheduleFlush)
    assert flush.after_s == settings.busy_flush_s
    host.flush()
    coordinator.accept()
    host.finish(host.key())  # the last one leaves the shelf
    host.flush()
    coordinator.accept(action="end")
    host.taken(fx.ScheduleFlush)
    host.finish(host.key())
    [flush] = host.taken(fx.ScheduleFlush)
    assert flush.after_s == settings.flush_s < settings.busy_flush_s


def test_a_worker_is_not_released_before_its_result_is_stored(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.is_disk_full = True
    answer = host.finish(host.key())
    assert isinstance(answer, ipc.Refused)
    assert answer.is_retryable
    assert stage(host, 1) is Stage.HANDED
    host.is_disk_full = False
    assert isinstance(host.finish(host.key()), ipc.Done)


def test_a_crash_that_could_not_be_stored_is_stored_later(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.is_disk_full = True
    host.die(host.key(), signal=9)
    assert stage(host, 1) is Stage.STORING
    host.is_disk_full = False
    host.wait(2)
    assert stage(host, 1) is Stage.FINISHED


def test_64_lines_are_sent_at_once_and_two_frames_are_under_way_at_most(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(100))
    coordinator.give(*range(1, 101))
    host.now += host.core.model.settings.busy_flush_s
    host.flush()
    [starts] = host.sent(fm.ReportTasks)
    assert len(starts.reports) == 100
    for slot in range(64):
        host.finish(host.key(slot))
    [results] = host.sent(fm.ReportTasks)
    assert [one.op for one in results.reports] == ["commit"] * 64
    for slot in range(64, 100):
        host.finish(host.key(slot))
    host.flush()
    assert host.sent(fm.ReportTasks) == []  # two are under way


def test_a_start_waits_for_its_result_while_tasks_wait_for_a_worker(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(2, 8))
    coordinator.give(1, 2, 3, 4, 5, 6)
    host.now += host.core.model.settings.busy_flush_s * 0.6
    host.finish(host.key(0))  # the worker takes 3 at once
    host.now += host.core.model.settings.busy_flush_s * 0.6
    host.do(ev.FlushDue())
    lines = coordinator.accept(action="end")
    assert [(one.op, one.task_id) for one in lines] == [("start", 2), ("commit", 1)]
    # 3 was too young for that frame, so there is another one; 2 is not told twice.
    [again] = host.taken(fx.ScheduleFlush)[-1:]
    assert again.after_s == host.core.model.settings.busy_flush_s
    host.now += again.after_s
    host.do(ev.FlushDue())
    lines = coordinator.accept()
    assert [(one.op, one.task_id) for one in lines] == [("start", 3)]


def test_what_ends_before_it_is_told_is_told_once(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(1, 8))
    coordinator.give(1, 2, 3, 4, 5)
    told: list[tuple[str, int]] = []
    for _ in range(2):
        host.now += host.core.model.settings.busy_flush_s * 0.9
        host.finish(host.key(0))
        host.now += host.core.model.settings.busy_flush_s * 0.2
        host.do(ev.FlushDue())
        told += [(one.op, one.task_id) for one in coordinator.accept(action="end")]
    assert told == [("commit", 1), ("commit", 2)]


def test_a_line_that_is_to_come_later_is_repeated_with_its_op_id(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.finish(host.key())
    host.flush()
    [first] = coordinator.accept(ReportAnswer.RETRY_LATER)
    assert host.outbox
    host.wait(1.5)
    [second] = coordinator.accept(action="end")
    assert first == second
    assert not host.outbox


@pytest.mark.parametrize(
    "answer", [ReportAnswer.OK_DUPLICATE, ReportAnswer.STALE_ATTEMPT, ReportAnswer.INVALID]
)
def test_any_other_answer_settles_a_result(
    host: AgentHost, coordinator: AgentCoordinator, answer: ReportAnswer
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.finish(host.key())
    host.flush()
    coordinator.accept(answer)
    assert not host.outbox
    assert stage(host, 1) is None


def test_reports_without_an_answer_are_sent_again(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.finish(host.key())
    host.flush()
    [frame] = host.sent(fm.ReportTasks)
    host.do(ev.RequestTimedOut(frame.request_id))
    host.wait(0.5)
    [again] = host.sent(fm.ReportTasks)
    assert again.reports == frame.reports
    # The late answer to the first frame finds nobody, the second one settles.
    results = [tm.ReportResult(task_id=1, answer=ReportAnswer.OK, action="end")]
    host.frame(tm.ReportsAccepted(request_id=frame.request_id, results=results))
    assert host.outbox
    host.frame(tm.ReportsAccepted(request_id=again.request_id, results=results))
    assert not host.outbox


def test_lines_that_come_while_a_frame_is_under_way_share_the_next_one(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1, 3))
    coordinator.give(1, 2, 3, 4)
    host.finish(host.key())
    host.flush()
    [first] = host.sent(fm.ReportTasks)
    for _ in range(2):
        host.finish(host.key())
        host.flush()
    assert not host.sent(fm.ReportTasks)
    results = [
        tm.ReportResult(task_id=line.task_id, answer=ReportAnswer.OK) for line in first.reports
    ]
    host.frame(tm.ReportsAccepted(request_id=first.request_id, results=results))
    [second] = host.sent(fm.ReportTasks)
    assert [line.task_id for line in second.reports if line.op == "commit"] == [2, 3]
