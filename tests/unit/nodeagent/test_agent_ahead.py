"""Workers that hold the next attempt beside the one they run, in the agent's core."""

from uuid import UUID

from mitosis_protocol import from_manager as fm
from mitosis_protocol import ipc
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import TaskExecState
from mitosis_protocol.manager_reports import TaskEvent
from nodeagent import effects as fx
from nodeagent import events as ev
from nodeagent.core.attempts import Stage
from tests.fakes.agent_coordinator import AgentCoordinator
from tests.fakes.agent_host import AgentHost
from tests.fakes.agent_suites import make_suite


def start_pair(host: AgentHost, coordinator: AgentCoordinator) -> None:
    """One worker that runs attempt 1 and has 2 ahead; 3 is on the shelf."""
    coordinator.start(make_suite(1, 8))
    coordinator.give(1, 2, 3)
    host.hand_ahead(host.key())
    host.taken(fx.PutOnShelf)


def failures(host: AgentHost) -> list[int]:
    """Attempts that were reported as crashed."""
    lines = [line for frame in host.sent(fm.ReportTasks) for line in frame.reports]
    return [line.task_id for line in lines if line.op == "failure"]


def told(host: AgentHost, coordinator: AgentCoordinator) -> list[tuple[str, int]]:
    """What the coordinator hears within five seconds, and takes."""
    host.now += 5
    host.flush()
    return [(line.op, line.task_id) for line in coordinator.accept()]


def in_hand(host: AgentHost) -> tuple[int | None, int | None]:
    slot = host.core.model.slots[0]
    return (
        None if slot.attempt is None else slot.attempt.attempt_id,
        None if slot.ahead is None else slot.ahead.attempt_id,
    )


def test_a_result_makes_the_one_ahead_the_one_that_runs(
    host: AgentHost, coordinator: AgentCoordinator
):
    start_pair(host, coordinator)
    assert in_hand(host) == (1, 2)
    host.finish(host.key())
    assert in_hand(host) == (2, None)
    host.finish(host.key())
    assert in_hand(host) == (3, None)


def test_a_result_moves_its_worker_on_before_the_disk_has_it(
    host: AgentHost, coordinator: AgentCoordinator
):
    start_pair(host, coordinator)
    host.is_disk_full = True
    token = host.ask_only(host.key(), ipc.FinishTask, attempt_id=1, exit_status=0)
    assert in_hand(host) == (2, None)
    assert token not in host.answers, "answered once it is safe"
    host.is_disk_full = False
    host.wait(3)
    assert isinstance(host.answers[token], ipc.Done)


def test_only_what_ran_is_charged_when_the_worker_dies(
    host: AgentHost, coordinator: AgentCoordinator
):
    start_pair(host, coordinator)
    host.die(host.key(), signal=11)
    host.flush()
    assert failures(host) == [1]
    (put,) = host.taken(fx.PutOnShelf)
    assert ([item.task.task_id for item in put.items], put.at_front) == ([2], True)


def test_after_the_result_of_the_first_a_death_is_that_of_the_second(
    host: AgentHost, coordinator: AgentCoordinator
):
    start_pair(host, coordinator)
    host.ask(host.key(), ipc.FinishTask, attempt_id=1, exit_status=0)
    host.die(host.key(), signal=11)
    host.flush()
    assert failures(host) == [2]


def test_what_is_given_back_goes_to_the_front_free_of_charge(
    host: AgentHost, coordinator: AgentCoordinator
):
    start_pair(host, coordinator)
    key = host.key()
    token = host.give_back_ahead(key)
    assert isinstance(host.answers[token], ipc.Done)
    assert in_hand(host) == (1, None)
    assert [item.task.task_id for item in host.shelf] == [2, 3]
    host.flush()
    assert failures(host) == []


def test_a_cancelled_one_ahead_is_stopped_at_its_worker_and_returned(
    host: AgentHost, coordinator: AgentCoordinator
):
    start_pair(host, coordinator)
    host.frame(tm.CancelTask(task_uuid=UUID(int=2), reason="no"))
    (stop,) = [one.message for one in host.taken(fx.Publish)]
    assert isinstance(stop, ipc.CancelTask)
    assert stop.attempt_id == 2
    host.give_back_ahead(host.key())
    assert host.core.model.ledger.attempts[2].stage is Stage.RETURNING


def test_one_ahead_is_not_told_as_started(host: AgentHost, coordinator: AgentCoordinator):
    start_pair(host, coordinator)
    assert told(host, coordinator) == [("start", 1)]
    host.ask(host.key(), ipc.FinishTask, attempt_id=1, exit_status=0)
    assert told(host, coordinator) == [("start", 2), ("commit", 1)]


def test_after_a_new_link_only_what_runs_is_told_as_started(
    host: AgentHost, coordinator: AgentCoordinator
):
    start_pair(host, coordinator)
    told(host, coordinator)
    host.do(ev.LinkLost("cut"))
    coordinator.connect()
    assert told(host, coordinator) == [("start", 1)]


def test_its_heartbeat_may_be_heard_before_the_result_that_made_way_for_it(
    host: AgentHost, coordinator: AgentCoordinator
):
    start_pair(host, coordinator)
    host.taken(fx.Publish)
    host.ask(host.key(), ipc.Heartbeat, attempt_id=2)
    assert host.taken(fx.Publish) == [], "it is its own, and nothing to stop"


def test_news_about_either_are_taken(host: AgentHost, coordinator: AgentCoordinator):
    start_pair(host, coordinator)
    for attempt_id in (1, 2, 3):
        event = TaskEvent(task_id=attempt_id, exec_state=TaskExecState.EXEC_SPAWNED)
        host.ask(host.key(), ipc.NoteEvents, events=[event])
    assert [event.task_id for event in host.core.model.news] == [1, 2]


def test_a_worker_that_fetches_with_both_in_hand_has_lost_both(
    host: AgentHost, coordinator: AgentCoordinator
):
    start_pair(host, coordinator)
    host.hands.clear()
    host.ahead.clear()
    host.shelf.clear()
    host.fetch(host.key())
    host.flush()
    assert failures(host) == [1, 2]


def test_who_ends_the_one_ahead_without_a_word_on_the_first_has_lost_that(
    host: AgentHost, coordinator: AgentCoordinator
):
    start_pair(host, coordinator)
    answer = host.ask(host.key(), ipc.FinishTask, attempt_id=2, exit_status=0)
    assert isinstance(answer, ipc.Done)
    host.flush()
    assert failures(host) == [1]


def test_who_wants_to_start_the_one_ahead_is_done_with_the_first(
    host: AgentHost, coordinator: AgentCoordinator
):
    start_pair(host, coordinator)
    host.ask_only(host.key(), ipc.StartTask, attempt_id=2)
    assert in_hand(host) == (2, None)
    host.die(host.key(), signal=9)
    assert not host.core.model.reports.permits
