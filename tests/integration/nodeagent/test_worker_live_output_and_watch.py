"""What goes on between tasks and people while a task runs: live output, and watching others."""

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from tests.fakes.http_coordinator import FakeCoordinator, FakeTask
from tests.fakes.tiny_http import Answer, Fault, Trouble
from tests.fakes.worker_process import WorkerProcess, committed, wait_until

StartWorker = Callable[..., WorkerProcess]


def test_output_is_seen_while_the_task_runs(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    script = "echo first; echo oops >&2; sleep 3; head -c 200000 /dev/zero; echo last"
    task = coordinator.add_task("sh", "-c", script)
    task.extra["live_logs"] = True
    start_worker()
    wait_until(lambda: coordinator.logs.get((task.uuid, "stdout")) == b"first\n")
    wait_until(lambda: coordinator.logs.get((task.uuid, "stderr")) == b"oops\n")
    assert not task.is_archived
    committed(task)
    assert coordinator.logs[task.uuid, "stdout"] == b"first\n" + bytes(200_000) + b"last\n"
    # Nobody asked for the archive.
    assert task.ops == ["Finish", "Commit"]


def test_without_the_announcement_no_output_is_sent(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    task = coordinator.add_task("sh", "-c", "echo x; sleep 1.2", terminal_output=True)
    start_worker()
    committed(task)
    assert not coordinator.logs


def test_trouble_with_live_output_does_not_hurt_the_task(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    refused = coordinator.add_task("sh", "-c", "echo x; sleep 1.5; echo y")
    refused.extra["live_logs"] = True
    coordinator.http.faults.append(
        Fault("POST", f"/workers/tasks/{refused.uuid}/logs", Answer(404), times=9)
    )
    broken = coordinator.add_task("sh", "-c", "echo x; sleep 1.5; echo y")
    broken.extra["live_logs"] = True
    coordinator.http.faults.append(
        Fault("POST", f"/workers/tasks/{broken.uuid}/logs", Trouble.RESET, times=1)
    )
    start_worker()
    assert committed(refused) == {"exit_status": 0, "msg": None}
    assert committed(broken) == {"exit_status": 0, "msg": None}
    assert coordinator.logs[broken.uuid, "stdout"] == b"x\ny\n"


def test_a_watching_task_starts_when_the_other_got_there(
    coordinator: FakeCoordinator, start_worker: StartWorker, tmp_path: Path
) -> None:
    watched = FakeTask(7, {"args": ["true"]}, state="Running", assigned=uuid4())
    coordinator.tasks.append(watched)
    proof = tmp_path / "ran"
    task = coordinator.add_task("touch", str(proof), watch=[str(watched.uuid), "ExecFinished"])
    start_worker()
    asked = f"/workers/tasks/{watched.uuid}"
    wait_until(lambda: [r for r in coordinator.http.requests if r.path == asked])
    assert not proof.exists()
    watched.state = "Finished"
    assert committed(task) == {"exit_status": 0, "msg": None}
    assert proof.exists()


def test_watching_a_task_that_can_no_longer_get_there_ends_at_once(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    watched = FakeTask(7, {"args": ["true"]}, state="Cancelled", is_archived=True)
    watched.result = {"exit_status": 0, "msg": "ResourceNotFound"}
    coordinator.tasks.append(watched)
    tasks = [
        coordinator.add_task("true", watch=[str(uuid), "ExecFinished"])
        for uuid in (watched.uuid, uuid4())
    ]
    start_worker()
    for task in tasks:
        assert committed(task) == {"exit_status": 0, "msg": "WatchTimeout"}
