"""Fetching, prefetch and returns in the agent's core."""

from mitosis_protocol import from_manager as fm
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import ReportAnswer
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.suites import ResourceLimits
from nodeagent import effects as fx
from nodeagent import events as ev
from nodeagent.core.attempts import Stage
from tests.fakes.agent_coordinator import AgentCoordinator
from tests.fakes.agent_host import AgentHost
from tests.fakes.agent_suites import make_suite, make_task


def stage(host: AgentHost, attempt_id: int) -> Stage | None:
    attempt = host.core.model.ledger.attempts.get(attempt_id)
    return None if attempt is None else attempt.stage


def test_prefetch_is_kept_between_its_marks(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(1, 4))
    assert coordinator.give(1, 2, 3, 4, 5).max_tasks == 5
    assert not host.sent(fm.FetchTasks), "full"
    host.finish(host.key())
    assert not host.sent(fm.FetchTasks), "above the low mark"
    host.finish(host.key())
    assert [one.max_tasks for one in host.sent(fm.FetchTasks)] == [2]


def test_an_empty_answer_is_followed_by_a_question_every_12_seconds_or_at_a_push(
    host: AgentHost, coordinator: AgentCoordinator
):
    suite = make_suite(1)
    coordinator.start(suite)
    coordinator.give()
    host.wait(11)
    assert not host.sent(fm.FetchTasks)
    host.wait(2)
    coordinator.give()
    host.frame(tm.TasksReady(suite_uuid=suite.uuid))
    assert len(host.sent(fm.FetchTasks)) == 1


def test_a_fetch_without_an_answer_is_repeated_with_its_claim_id(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    [first] = host.sent(fm.FetchTasks)
    host.do(ev.RequestTimedOut(first.request_id))
    [second] = host.sent(fm.FetchTasks)
    assert (second.claim_id, second.max_tasks) == (first.claim_id, first.max_tasks)
    host.frame(tm.TasksAvailable(request_id=second.request_id, tasks=[make_task(1)]))
    host.finish(host.key())
    host.flush()
    coordinator.accept(action="end")
    # The answer to the first one, late: the attempt is over and must not run again.
    host.frame(tm.TasksAvailable(request_id=first.request_id, tasks=[make_task(1)]))
    assert not host.hands


def test_parts_of_a_claim_that_come_twice_run_once(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(1, 1))
    [fetch] = host.sent(fm.FetchTasks)
    part = tm.TasksAvailable(request_id=fetch.request_id, tasks=[make_task(1)], has_more=True)
    host.frame(part)
    host.finish(host.key())
    host.flush()
    coordinator.accept(action="end")
    host.do(ev.LinkLost())
    coordinator.connect()
    again = next(one for one in host.sent(fm.FetchTasks) if one.claim_id == fetch.claim_id)
    tasks = [make_task(1, is_repeat=True), make_task(2, is_repeat=True)]
    host.frame(tm.TasksAvailable(request_id=again.request_id, tasks=tasks))
    assert list(host.hands.values()) == [2]


def test_a_refused_fetch_is_asked_again_after_a_while(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    [fetch] = host.sent(fm.FetchTasks)
    refusal = tm.Error(
        code=ErrorCode.DATABASE_UNAVAILABLE,
        message="busy",
        request_id=fetch.request_id,
        is_retryable=True,
    )
    host.frame(refusal)
    assert not host.sent(fm.FetchTasks)
    host.wait(1.5)
    [again] = host.sent(fm.FetchTasks)
    assert again.claim_id == fetch.claim_id


def test_tasks_that_come_when_the_suite_is_drained_are_returned(
    host: AgentHost, coordinator: AgentCoordinator
):
    suite = make_suite(1)
    coordinator.start(suite)
    host.frame(tm.SuiteDrained(assignment_id=1, suite_uuid=suite.uuid, reason="done"))
    coordinator.give(1, 2)
    assert coordinator.take_back() == [1, 2]
    assert not host.taken(fx.PutOnShelf)


def test_surplus_goes_to_hosts_that_idle_and_nothing_is_read_ahead_until_there_is_more(
    host: AgentHost, coordinator: AgentCoordinator
):
    suite = make_suite(1, 4)
    coordinator.start(suite)
    coordinator.give(1, 2, 3, 4, 5)
    host.sent(fm.FetchTasks)
    host.frame(tm.ReturnSurplus(suite_uuid=suite.uuid, keep=2, task_ids=[1, 2, 4, 5]))
    assert sorted(coordinator.take_back()) == [2, 4, 5]
    assert [one.task.task_id for one in host.shelf] == [3]
    assert not host.sent(fm.FetchTasks)
    host.frame(tm.TasksReady(suite_uuid=suite.uuid))
    assert [one.max_tasks for one in host.sent(fm.FetchTasks)] == [3]


def test_a_return_that_is_not_taken_now_is_repeated(host: AgentHost, coordinator: AgentCoordinator):
    suite = make_suite(1, 1)
    coordinator.start(suite)
    coordinator.give(1, 2)
    host.frame(tm.Pause(suite_uuid=suite.uuid))
    [frame] = host.sent(fm.ReturnTasks)
    result = tm.ReportResult(task_id=2, answer=ReportAnswer.RETRY_LATER)
    host.frame(tm.ReportsAccepted(request_id=frame.request_id, results=[result]))
    assert not host.sent(fm.ReturnTasks)
    host.wait(1.5)
    assert coordinator.take_back() == [2]
    assert stage(host, 2) is None


def test_the_limits_of_a_task_count_more_than_those_of_its_suite(
    host: AgentHost, coordinator: AgentCoordinator
):
    small, large = ResourceLimits(pids=1), ResourceLimits(pids=2)
    coordinator.start(make_suite(2, limits=small))
    [fetch] = host.sent(fm.FetchTasks)
    tasks = [make_task(1), make_task(2, limits=large)]
    host.frame(tm.TasksAvailable(request_id=fetch.request_id, tasks=tasks))
    [put] = host.taken(fx.PutOnShelf)
    assert [one.limits for one in put.items] == [small, large]
