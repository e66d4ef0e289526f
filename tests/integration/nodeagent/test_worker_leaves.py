"""Leaving on request: what is killed, what is given back, what is finished first."""

import signal
from collections.abc import Callable

from tests.fakes.http_coordinator import FakeCoordinator
from tests.fakes.worker_process import WorkerProcess, living, wait_until

StartWorker = Callable[..., WorkerProcess]


def test_sigterm_kills_the_command_gives_the_task_back_and_cleans_up(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    task = coordinator.add_task("sh", "-c", "trap '' TERM; sleep 600", envs={"MARK": marker})
    worker = start_worker()
    wait_until(lambda: living(marker))
    worker.send(signal.SIGTERM)
    assert worker.wait(within_s=5) == 0
    assert len(coordinator.unregistered) == 1
    assert (task.state, task.ops) == ("Ready", [])
    assert not living(marker)
    assert worker.work_dirs() == []


def test_with_grace_the_task_in_hand_is_finished_and_no_other_taken(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    task = coordinator.add_task("sleep", "1", envs={"MARK": marker})
    other = coordinator.add_task("true")
    worker = start_worker("--grace", "20s")
    wait_until(lambda: living(marker))
    worker.send(signal.SIGINT)
    assert worker.wait() == 0
    assert task.result == {"exit_status": 0, "msg": None}
    assert (other.state, len(coordinator.unregistered)) == ("Ready", 1)


def test_a_second_signal_ends_the_grace(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    coordinator.add_task("sleep", "600", envs={"MARK": marker})
    worker = start_worker("--grace", "1h")
    wait_until(lambda: living(marker))
    worker.send(signal.SIGTERM)
    wait_until(lambda: worker.events("worker.finishing"))
    worker.send(signal.SIGTERM)
    assert worker.wait(within_s=5) == 0


def test_a_worker_can_be_stopped_while_it_looks_for_its_coordinator(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    coordinator.http.stop()
    worker = start_worker()
    wait_until(lambda: worker.events("retry.waiting"))
    worker.send(signal.SIGTERM)
    assert worker.wait(within_s=5) == 0
