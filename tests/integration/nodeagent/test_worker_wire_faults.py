"""The worker on a bad wire: it waits, repeats, drops what is gone, and never simply exits."""

import signal
import time
from collections.abc import Callable

import pytest

from tests.fakes.http_coordinator import FakeCoordinator
from tests.fakes.tiny_http import Answer, Fault, Trouble
from tests.fakes.worker_process import WorkerProcess, committed, living, wait_until

StartWorker = Callable[..., WorkerProcess]


def test_a_coordinator_restart_in_the_middle_of_a_task_costs_nothing(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    task = coordinator.add_task(
        "sh", "-c", "sleep 1; echo x > $MITO_RESULT_DIR/a", envs={"MARK": marker}
    )
    worker = start_worker()
    wait_until(lambda: living(marker))
    coordinator.http.stop()
    wait_until(lambda: worker.events("heartbeat.failed"))
    wait_until(lambda: not living(marker))
    time.sleep(0.5)
    coordinator.http.start()
    assert committed(task) == {"exit_status": 0, "msg": None}
    assert task.fetches == 1
    after = coordinator.add_task("true")
    assert committed(after)["exit_status"] == 0


@pytest.mark.parametrize(
    "action", [Answer(500), Answer(502), Answer(429), Trouble.RESET, Trouble.LOST_ANSWER]
)
def test_every_call_survives_a_bad_answer(
    coordinator: FakeCoordinator, start_worker: StartWorker, action: Answer | Trouble
) -> None:
    for method, path in (
        *(("GET", "/auth"), ("POST", "/login"), ("POST", "/workers"), ("GET", "/workers/tasks")),
        *(("POST", "/workers/tasks"), ("POST", "/workers/heartbeat")),
    ):
        coordinator.http.faults.append(Fault(method, path, action, times=2))
    first = coordinator.add_task("sh", "-c", "echo x > $MITO_RESULT_DIR/a")
    second = coordinator.add_task("true")
    start_worker()
    for task in (first, second):
        assert committed(task) == {"exit_status": 0, "msg": None}


def test_a_stray_answer_from_a_proxy_does_not_end_the_worker(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    redirect = Answer(301, headers={"Location": "http://127.0.0.1:1/"})
    for answer in (Answer(404), Answer(400), Answer(body=b"<html>"), redirect):
        coordinator.http.faults += [
            Fault("GET", "/workers/tasks", answer),
            Fault("POST", "/workers/heartbeat", answer),
        ]
    task = coordinator.add_task("true")
    start_worker()
    assert committed(task)["exit_status"] == 0
    wait_until(lambda: coordinator.heartbeats)


def test_retry_after_is_honoured(coordinator: FakeCoordinator, start_worker: StartWorker) -> None:
    coordinator.http.faults.append(
        Fault("GET", "/workers/tasks", Answer(429, headers={"Retry-After": "2"}))
    )
    start_worker()
    wait_until(lambda: coordinator.workers)
    started = time.monotonic()
    task = coordinator.add_task("true")
    committed(task)
    assert time.monotonic() - started > 1.5


def test_a_task_taken_away_is_dropped_and_the_next_one_runs(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    task = coordinator.add_task("sleep", "1", envs={"MARK": marker})
    worker = start_worker()
    wait_until(lambda: living(marker))
    with coordinator.lock:
        task.assigned, task.state = None, "Taken"
    wait_until(lambda: worker.events("task.gone"))
    after = coordinator.add_task("true")
    assert committed(after)["exit_status"] == 0
    assert task.ops == []


def test_a_commit_whose_answer_is_lost_is_not_an_error(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    coordinator.http.faults.append(
        Fault("POST", "/workers/tasks", Trouble.LOST_ANSWER, containing=b"Commit")
    )
    task = coordinator.add_task("true")
    after = coordinator.add_task("true")
    worker = start_worker()
    assert committed(task)["exit_status"] == 0
    assert committed(after)["exit_status"] == 0
    assert worker.events("task.gone")
    assert (task.fetches, task.ops) == (1, ["Finish", "Commit"])


def test_a_report_that_is_refused_for_good_is_settled_when_the_task_comes_back(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    task = coordinator.add_task("sleep", "0.3")
    coordinator.http.faults.append(Fault("POST", "/workers/tasks", Answer(400)))
    worker = start_worker()
    assert committed(task) == {"exit_status": 125 * 256, "msg": None}
    assert worker.events("task.report_refused")
    assert task.fetches == 2


def test_removal_found_at_a_report_ends_the_worker_cleanly(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    coordinator.add_task("sleep", "0.3")
    coordinator.http.faults.append(Fault("POST", "/workers/tasks", Answer(401)))
    worker = start_worker()
    assert worker.wait() == 0
    assert worker.events("worker.removed")
    assert worker.work_dirs() == []


@pytest.mark.parametrize(
    ("point", "ops"),
    [
        ("worker.task_fetched", []),
        ("worker.before_finish", []),
        ("worker.before_commit", ["Finish"]),
        ("worker.after_commit", ["Finish", "Commit"]),
    ],
)
def test_a_worker_killed_between_two_steps_has_said_no_more_than_that(
    coordinator: FakeCoordinator, start_worker: StartWorker, point: str, ops: list[str], marker: str
) -> None:
    task = coordinator.add_task("sh", "-c", "setsid sleep 600 & true", envs={"MARK": marker})
    worker = start_worker(MITOSIS_FAULTS=f"{point}=kill9")
    assert worker.wait() == -signal.SIGKILL
    assert task.ops == ops


@pytest.mark.alone
def test_leaving_does_not_wait_for_a_coordinator_that_is_away(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    coordinator.add_task("sleep", "600", envs={"MARK": marker})
    worker = start_worker()
    wait_until(lambda: living(marker))
    coordinator.http.stop()
    started = time.monotonic()
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert time.monotonic() - started < 6
    assert worker.work_dirs() == []


def test_a_session_lost_between_login_and_registration_is_renewed(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    coordinator.http.faults.append(Fault("POST", "/workers", Answer(401)))
    start_worker()
    wait_until(lambda: coordinator.registrations)
    assert len(coordinator.logins) == 2
