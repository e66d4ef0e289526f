"""What becomes of a task's processes: limits, cancellation, and every way of leaving early."""

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.fakes.http_coordinator import FakeCoordinator
from tests.fakes.worker_process import WorkerProcess, committed, content, living, wait_until

StartWorker = Callable[..., WorkerProcess]

# A parent that exits at once, and a grandchild in a session of its own that ignores SIGTERM.
DAEMON = (
    "import os, signal, sys, time\n"
    "if os.fork(): sys.exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
    "time.sleep(600)\n"
)


def launcher_of(worker: WorkerProcess) -> psutil.Process:
    return wait_until(lambda: psutil.Process(worker.process.pid).children())[0]


@pytest.mark.alone
def test_a_command_that_ignores_sigterm_is_killed_ten_seconds_after_its_time(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    script = "trap 'echo asked' TERM; echo result > $MITO_RESULT_DIR/a; while :; do sleep 0.1; done"
    task = coordinator.add_task(
        "sh", "-c", script, timeout="1s", terminal_output=True, envs={"MARK": marker}
    )
    start_worker()
    wait_until(lambda: living(marker))
    started = time.monotonic()
    result = committed(task, within_s=30)
    assert 9 < time.monotonic() - started < 15
    assert result == {"exit_status": signal.SIGKILL, "msg": "ExecTimeout"}
    assert task.ops == ["Cancel", "Upload", "Upload", "Commit"]
    output = content(coordinator.store[f"artifact/{task.uuid}/std-log"], "std-log/stdout.log")
    assert output == b"asked\n"


def test_the_whole_group_is_asked_to_stop_when_time_is_up(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    script = "sleep 600 & sleep 600 & wait"
    task = coordinator.add_task("sh", "-c", script, timeout="500ms", envs={"MARK": marker})
    start_worker()
    assert committed(task) == {"exit_status": signal.SIGTERM, "msg": "ExecTimeout"}


def test_a_daemon_left_behind_is_killed_before_the_task_is_reported(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    script = f'{sys.executable} -c "$0" {pid_file}; until test -s {pid_file}; do sleep 0.05; done'
    task = coordinator.add_task("sh", "-c", script, DAEMON, envs={"MARK": marker})
    worker = start_worker()
    assert committed(task) == {"exit_status": 0, "msg": None}
    assert not psutil.pid_exists(int(pid_file.read_text()))
    assert worker.events("command.ended")[0]["leftovers"] == 1


def test_a_small_fork_storm_is_ended(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    storm = (
        "import os, time\n"
        "for _ in range(6): os.fork()\n"
        "os.setsid() if os.getpid() != os.getpgid(0) else None\n"
        "time.sleep(600)\n"
    )
    task = coordinator.add_task(sys.executable, "-c", storm, timeout="2s", envs={"MARK": marker})
    start_worker()
    assert committed(task, within_s=30)["msg"] == "ExecTimeout"
    assert not living(marker)


def test_kill_9_of_the_worker_leaves_no_process(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    script = f'{sys.executable} -c "$0" {pid_file}; sleep 600'
    coordinator.add_task("sh", "-c", script, DAEMON, envs={"MARK": marker})
    worker = start_worker()
    wait_until(pid_file.exists)
    launcher = launcher_of(worker)
    worker.send(signal.SIGKILL)
    worker.wait()
    wait_until(lambda: not living(marker), within_s=5)
    wait_until(lambda: not launcher.is_running(), within_s=5)


def test_kill_9_of_the_worker_ends_a_launcher_that_its_command_has_stopped(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    script = "kill -STOP $PPID; exec sleep 600"
    coordinator.add_task("sh", "-c", script, timeout="1h", envs={"MARK": marker})
    worker = start_worker()
    launcher = launcher_of(worker)
    wait_until(lambda: launcher.status() == psutil.STATUS_STOPPED)
    worker.send(signal.SIGKILL)
    wait_until(lambda: not living(marker), within_s=5)
    wait_until(lambda: not launcher.is_running(), within_s=5)


def test_the_next_worker_removes_the_directory_of_a_killed_one(
    coordinator: FakeCoordinator, start_worker: StartWorker, tmp_path: Path
) -> None:
    cache = tmp_path / "shared-cache"
    first = start_worker("--cache-dir", str(cache))
    left = wait_until(lambda: list((cache / "mitosis").glob("*/result")))[0].parent
    first.send(signal.SIGKILL)
    first.wait()
    assert left.exists()
    start_worker("--cache-dir", str(cache))
    wait_until(lambda: not left.exists())


def test_what_outlived_worker_and_launcher_is_ended_by_the_next_worker(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str, tmp_path: Path
) -> None:
    cache = tmp_path / "shared-cache"
    coordinator.add_task("sleep", "600", envs={"MARK": marker})
    first = start_worker("--cache-dir", str(cache))
    wait_until(lambda: living(marker))
    launcher = launcher_of(first)
    launcher.suspend()  # so that neither sees the other die
    first.send(signal.SIGSTOP)
    launcher.kill()
    first.send(signal.SIGKILL)
    first.wait()
    assert living(marker)
    start_worker("--cache-dir", str(cache))
    wait_until(lambda: not living(marker))


def test_a_command_that_kills_its_launcher_is_cleaned_up_and_reported(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    task = coordinator.add_task(
        "sh", "-c", "setsid sleep 600 & kill -9 $PPID; sleep 600", envs={"MARK": marker}
    )
    after = coordinator.add_task("true")
    worker = start_worker()
    assert committed(task) == {"exit_status": signal.SIGKILL, "msg": None}
    assert not living(marker)
    assert worker.events("launcher.lost")
    assert committed(after)["exit_status"] == 0


def test_a_command_that_stops_its_launcher_is_still_ended_in_time(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    task = coordinator.add_task(
        "sh", "-c", "kill -STOP $PPID; exec sleep 600", timeout="500ms", envs={"MARK": marker}
    )
    start_worker()
    assert committed(task)["msg"] == "ExecTimeout"


def test_a_cancelled_task_is_stopped_and_reported_as_the_users_wish(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    script = "echo partial > $MITO_RESULT_DIR/a; exec sleep 600"
    task = coordinator.add_task("sh", "-c", script, envs={"MARK": marker})
    start_worker()
    wait_until(lambda: living(marker))
    coordinator.heartbeat_answer = {"cancel": [task.id], "revoked": []}
    assert committed(task) == {"exit_status": 0, "msg": "UserCancellation"}
    assert task.ops == ["Cancel", "Upload", "Commit"]


@pytest.mark.alone
def test_a_cancelled_task_that_ignores_sigterm_is_killed_after_five_seconds(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    script = "trap '' TERM; while :; do sleep 0.1; done"
    task = coordinator.add_task("sh", "-c", script, envs={"MARK": marker})
    start_worker()
    wait_until(lambda: living(marker))
    started = time.monotonic()
    coordinator.heartbeat_answer = {"cancel": [task.id]}
    committed(task)
    assert 4.5 < time.monotonic() - started < 8


def test_a_revoked_task_is_stopped_and_never_mentioned_again(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    task = coordinator.add_task("sleep", "600", envs={"MARK": marker})
    worker = start_worker()
    wait_until(lambda: living(marker))
    with coordinator.lock:
        task.assigned = None
        coordinator.heartbeat_answer = {"cancel": [], "revoked": [task.id]}
    wait_until(lambda: worker.events("task.dropped"))
    after = coordinator.add_task("true")
    assert committed(after)["exit_status"] == 0
    assert task.ops == []


def test_a_coordinator_that_answers_heartbeats_is_told_what_is_held(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    coordinator.heartbeat_answer = {"cancel": [], "revoked": []}
    start_worker()
    wait_until(lambda: coordinator.held == [])
    task = coordinator.add_task("sleep", "600", envs={"MARK": marker})
    wait_until(lambda: coordinator.held == [task.id])
    coordinator.heartbeat_answer = {"cancel": [task.id], "revoked": []}
    committed(task)


def test_a_removed_worker_kills_its_command_and_exits_cleanly(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    coordinator.add_task("sh", "-c", "trap '' TERM; sleep 600", envs={"MARK": marker})
    worker = start_worker()
    wait_until(lambda: living(marker))
    coordinator.remove_workers()
    assert worker.wait(within_s=8) == 0
    assert "no longer knows this worker" in worker.events("worker.removed")[0]["reason"]
    assert not living(marker)
    assert worker.work_dirs() == []


def test_heartbeats_go_on_while_a_task_runs_and_while_it_is_packed(
    coordinator: FakeCoordinator, start_worker: StartWorker, marker: str
) -> None:
    script = "head -c 60000000 /dev/urandom > $MITO_RESULT_DIR/noise; sleep 1"
    task = coordinator.add_task("sh", "-c", script, envs={"MARK": marker})
    start_worker()
    wait_until(lambda: living(marker))
    before = coordinator.heartbeats
    started = time.monotonic()
    committed(task, within_s=60)
    expected = (time.monotonic() - started) / 0.2
    assert coordinator.heartbeats - before > expected * 0.5


@pytest.mark.alone
def test_a_gigantic_output_does_not_grow_the_worker(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    small = coordinator.add_task("echo", "hello", terminal_output=True)
    big = coordinator.add_task(
        "sh",
        "-c",
        "head -c 300000000 /dev/zero; head -c 100000000 /dev/zero >&2",
        terminal_output=True,
    )
    big.extra["live_logs"] = True
    worker = start_worker()
    committed(small)
    before = worker.rss_kib()
    committed(big, within_s=60)
    assert worker.rss_kib() - before < 30_000
    assert worker.log_file.stat().st_size < 1_000_000
