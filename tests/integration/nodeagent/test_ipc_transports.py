"""Agent and workers over both transports: real iceoryx2 or sockets, real forked processes."""

import itertools
import os
import signal
import threading
import time

import pytest

from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.ipc import (
    CancelTask,
    Done,
    FinishTask,
    Shutdown,
    SubmitFollowUp,
    UploadReply,
    WorkerSettings,
)
from nodeagent.ipc import customer, iceoryx_server, names
from nodeagent.ipc.server import OfferTaken, WorkerAsked, WorkerKey, WorkerReady
from tests.fakes.ipc_agent import IpcAgent, count_descriptors, make_item
from tests.fakes.ipc_workers import IpcWorkers

# A leak of one thing each shows with any number; thousands on demand.
ATTACHMENTS = int(os.environ.get("IPC_ATTACHMENTS", "250"))


def test_a_worker_fetches_from_the_shelf_in_order_and_reports(agent: IpcAgent) -> None:
    agent.server.put([make_item(n) for n in (5, 3, 9)])
    worker = agent.start(0, "work")
    agent.wait_for(lambda: len(agent.asked()) == 3, "three reports")
    agent.server.dismiss(WorkerKey(0, 0))
    worker.wait()
    assert worker.words() == [
        *("took 5", "done 5", "took 3", "done 3", "took 9", "done 9", "over"),
    ]
    assert agent.taken() == [(0, 5), (0, 3), (0, 9)]
    first = next(event for event in agent.events if isinstance(event, WorkerReady))
    assert (first.worker, first.pid, first.trouble) == (WorkerKey(0, 0), worker.pid, None)
    # The agent has heard of each attempt before its report.
    story = [e for e in agent.events if not isinstance(e, WorkerReady)]
    assert [type(event).__name__ for event in story[:2]] == ["OfferTaken", "WorkerAsked"]


def test_on_a_loop_every_event_belongs_to_a_round_that_ends(ipc_workers: IpcWorkers) -> None:
    agent = IpcAgent("iceoryx2", ipc_workers, is_on_loop=True)
    try:
        agent.server.put([make_item(n) for n in (5, 3, 9)])
        agent.start(0, "work")
        agent.wait_for(lambda: len(agent.asked()) == 3 and len(agent.parked()) == 1, "parked")
        agent.wait_for(lambda: agent.rounds[-1:] == [len(agent.events)], "the last round ended")
    finally:
        agent.close()
        agent.remove()


def test_the_answer_to_a_result_brings_the_next_attempt_along(
    agent: IpcAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(customer, "QUICK_S", -1.0)
    agent.server.put([make_item(n) for n in (5, 3, 9)])
    worker = agent.start(0, "chain")
    worker.wait()
    assert worker.words() == ["took 5", "along 3", "along 9", "nothing"]
    assert agent.taken() == [(0, 5), (0, 3), (0, 9)]
    story = [type(e).__name__ for e in agent.events if not isinstance(e, WorkerReady)]
    assert story == 3 * ["OfferTaken", "WorkerAsked"], "each is heard of before its result"
    assert agent.server.stats().fetches == 3


def test_a_quick_worker_is_given_one_ahead_while_there_is_plenty(
    agent: IpcAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(customer, "QUICK_S", 60.0)
    agent.server.put([make_item(n) for n in range(1, 6)])
    worker = agent.start(0, "chain")
    worker.wait()
    # With four on the shelf one more than it runs; the last of them only when its turn comes.
    assert worker.words() == [
        *("took 1", "along 2 3", "along 4", "nothing", "along 5", "nothing"),
    ]
    ahead = [(e.attempt_id, e.is_ahead) for e in agent.events if isinstance(e, OfferTaken)]
    assert ahead == [(1, False), (2, False), (3, True), (4, True), (5, False)]


def test_who_has_one_ahead_looks_for_its_answer_by_itself(
    agent: IpcAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(customer, "QUICK_S", 60.0)
    agent.server.put([make_item(n) for n in range(1, 5)])
    worker = agent.start(0, "go_on")
    worker.wait()
    # A socket wakes whoever reads it.
    word = "looked" if agent.transport == "iceoryx2" else "rung"
    assert worker.words() == ["took 1", "rung 1", f"{word} 2", "rung 3", "rung 4"]


def test_nothing_comes_along_for_a_dismissed_worker_or_while_paused(agent: IpcAgent) -> None:
    for local_id, prevent in enumerate(
        (lambda: agent.server.dismiss(WorkerKey(0, 0)), lambda: agent.server.set_serving(False))
    ):
        agent.server.put([make_item(10 * local_id + n) for n in (1, 2)])
        agent.answer = lambda event, prevent=prevent: (
            prevent(),
            agent.server.reply(event.token, Done(request_id=event.token.request_id)),
        )
        worker = agent.start(local_id, "chain")
        worker.wait()
        assert worker.words() == [f"took {10 * local_id + 1}", "nothing"]
        assert agent.server.withdraw(9) == [10 * local_id + 2], "it stays on the shelf"


def test_a_signal_that_meets_the_ipc_thread_does_not_make_the_agent_deaf(
    agent: IpcAgent,
) -> None:
    [thread] = [one for one in threading.enumerate() if one.name == "ipc" and one.ident]
    earlier = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        for _ in range(3):
            signal.pthread_kill(thread.ident or 0, signal.SIGUSR1)
            time.sleep(0.05)  # until it waits again; too short makes the test miss, not fail
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    agent.server.put([make_item(1)])
    agent.start(0, "take")
    agent.wait_for(lambda: agent.taken() == [(0, 1)], "served")


def test_parked_workers_are_served_in_the_order_in_which_they_asked(agent: IpcAgent) -> None:
    for local_id in (2, 0, 1):
        agent.start(local_id, "take")
        agent.wait_for(lambda n=local_id: n in agent.parked(), "parked")
    agent.server.put([make_item(1), make_item(2)])
    agent.wait_for(lambda: len(agent.taken()) == 2, "two handed out")
    assert agent.taken() == [(2, 1), (0, 2)]
    assert agent.server.stats().parked == 1
    agent.server.put([make_item(3)], at_front=True)
    agent.wait_for(lambda: agent.taken()[-1] == (1, 3), "the last one")


def test_what_is_on_the_shelf_can_be_taken_back(agent: IpcAgent) -> None:
    agent.server.put([make_item(n) for n in range(1, 7)])
    agent.server.put([make_item(7), make_item(8)], at_front=True)
    assert agent.server.withdraw(2) == [6, 5]
    assert agent.server.remove({3, 8, 99}) == [8, 3]
    assert agent.server.withdraw(99) == [4, 2, 1, 7]
    assert agent.server.withdraw(1) == []


def test_a_paused_shelf_serves_nobody_until_it_is_resumed(agent: IpcAgent) -> None:
    agent.server.set_serving(False)
    agent.server.put([make_item(1)])
    agent.start(0, "take")
    agent.wait_for(lambda: agent.parked() == [0], "parked in front of a full shelf")
    assert agent.taken() == []
    agent.server.set_serving(True)
    agent.wait_for(lambda: agent.taken() == [(0, 1)], "served")


def test_a_parked_worker_is_dismissed_and_nobody_else(agent: IpcAgent) -> None:
    leaving, staying = agent.start(0, "work"), agent.start(1, "work")
    agent.wait_for(lambda: sorted(agent.parked()) == [0, 1], "both parked")
    agent.server.dismiss(WorkerKey(0, 0))
    leaving.wait()
    assert leaving.words() == ["over"]
    agent.server.put([make_item(1)])
    agent.wait_for(lambda: agent.taken() == [(1, 1)], "the other one works")
    agent.server.dismiss(WorkerKey(1, 0))
    staying.wait()


def test_a_report_about_an_attempt_of_somebody_else_is_refused(agent: IpcAgent) -> None:
    agent.server.put([make_item(7)])
    agent.start(0, "take")
    agent.wait_for(lambda: agent.taken() == [(0, 7)], "the owner has it")
    forger = agent.start(1, "forge", 7)
    forger.wait()
    (word,) = forger.words()
    assert "Refused" in word
    assert ErrorCode.TASK_STALE_ATTEMPT.value in word
    assert "is_gone=True" in word
    assert agent.asked() == []
    assert agent.server.stats().refused == 1


def test_an_attempt_is_the_workers_until_its_last_word_is_answered(agent: IpcAgent) -> None:
    agent.server.put([make_item(7)])
    worker = agent.start(0, "twice", 7)
    worker.wait()
    assert worker.words()[0] == "took 7"
    assert worker.words()[1].startswith("Done")
    assert "Refused" in worker.words()[2]
    assert [type(event.message) for event in agent.asked()] == [FinishTask]


def test_payloads_of_any_size_pass_both_ways_and_leave_no_file(agent: IpcAgent) -> None:
    sizes: list[int] = []

    def answer(event: WorkerAsked) -> None:
        assert isinstance(event.message, SubmitFollowUp)
        sizes.append(len(event.message.request))
        url = "u" * len(event.message.request)
        agent.server.reply(event.token, UploadReply(request_id=event.token.request_id, url=url))

    agent.answer = answer
    agent.server.put([make_item(1)])
    worker = agent.start(0, "swell", 1)
    worker.wait()
    expected = [100, 5_000, 900_000, 3_000_000, 200]
    assert sizes == expected
    assert worker.words()[1:] == [str(size) for size in expected]
    assert agent.server.stats().spilled >= 1
    assert [path for path in (agent.home / "ipc" / "payloads").rglob("*") if path.is_file()] == []


def test_control_reaches_those_it_concerns(agent: IpcAgent) -> None:
    agent.server.put([make_item(1)])
    holder = agent.start(0, "take_and_listen", 2)
    agent.wait_for(lambda: agent.taken() == [(0, 1)], "taken")
    other = agent.start(1, "listen", 1)
    agent.wait_for(lambda: _ready_count(agent) == 2, "both ready")
    agent.server.publish(CancelTask(attempt_id=1))
    agent.server.publish(WorkerSettings(log_bytes_per_s=5))
    holder.wait()
    other.wait()
    assert "CancelTask" in holder.words()[1]
    assert "log_bytes_per_s=5" in holder.words()[2]
    assert len(other.words()) == 1
    assert "WorkerSettings" in other.words()[0]


def test_a_graceful_shutdown_ends_the_waiting_of_parked_workers(agent: IpcAgent) -> None:
    worker = agent.start(0, "work")
    agent.wait_for(lambda: agent.parked() == [0], "parked")
    agent.server.publish(Shutdown(graceful=True))
    worker.wait()
    assert worker.words() == ["over"]


def test_a_slot_lives_again_under_a_new_generation(agent: IpcAgent) -> None:
    agent.server.put([make_item(n) for n in (1, 2)])
    first = agent.start(0, "take", generation=1)
    agent.wait_for(lambda: agent.taken() == [(0, 1)], "taken")
    first.kill()
    agent.server.detach(WorkerKey(0, 1))
    second = agent.start(0, "work", generation=2)
    agent.wait_for(lambda: len(agent.asked()) == 1, "the second life works")
    assert agent.asked()[0].token.worker == WorkerKey(0, 2)
    agent.server.dismiss(WorkerKey(0, 2))
    second.wait()


def test_answers_to_the_dead_are_dropped(agent: IpcAgent) -> None:
    kept: list[WorkerAsked] = []
    agent.answer = kept.append
    agent.server.put([make_item(1)])
    worker = agent.start(0, "work")
    agent.wait_for(lambda: len(kept) == 1, "a report that waits")
    worker.kill()
    agent.server.detach(WorkerKey(0, 0))
    agent.server.reply(kept[0].token, Done(request_id=kept[0].token.request_id))
    agent.server.reply(kept[0].token, Done(request_id=kept[0].token.request_id))
    agent.server.detach(WorkerKey(0, 0))


def test_nonsense_is_refused_and_the_worker_lives(agent: IpcAgent) -> None:
    worker = agent.start(0, "misplace")
    worker.wait()
    assert worker.words() == ["lost"] if agent.transport == "unix" else ["refused"]
    assert agent.server.stats().refused == 1
    assert agent.asked() == []


@pytest.mark.timeout(60 + ATTACHMENTS)
def test_hundreds_of_attachments_leave_nothing(agent: IpcAgent) -> None:
    agent.attach(7)
    agent.server.detach(WorkerKey(7, 0))
    before, files = count_descriptors(), agent.left_behind()
    for generation in range(ATTACHMENTS):
        agent.attach(3, generation)
        agent.server.detach(WorkerKey(3, generation))
    assert count_descriptors() <= before
    assert agent.left_behind() == files


def test_services_are_made_and_removed_one_worker_at_a_time_and_in_steps(
    ipc_workers: IpcWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step keeps the interpreter's lock; between two of them the loop serves the others."""
    steps: list[int] = []

    def pause() -> None:
        steps.append(threading.get_ident())
        time.sleep(0.001)

    monkeypatch.setattr(iceoryx_server, "_let_others_in", pause)
    agent = IpcAgent("iceoryx2", ipc_workers)
    try:
        for change in (agent.attach, lambda n: agent.server.detach(WorkerKey(n, 0))):
            steps.clear()
            threads = [threading.Thread(target=change, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            turns = [len(list(group)) for _, group in itertools.groupby(steps)]
            assert len(turns) == 4, "nobody came between the steps of another"
            assert min(turns) >= 2 * len(names.SERVICES)
    finally:
        agent.close()
        agent.remove()


def _ready_count(agent: IpcAgent) -> int:
    return sum(isinstance(event, WorkerReady) for event in agent.events)
