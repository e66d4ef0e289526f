"""The real worker process against the fake coordinator: what a task sees and what is reported."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fakes.http_coordinator import PASSWORD, USER, FakeCoordinator
from tests.fakes.worker_process import WorkerProcess, committed, content, members, wait_until

StartWorker = Callable[..., WorkerProcess]


def test_a_task_runs_and_leaves_three_archives(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    script = (
        "echo out; echo err >&2; echo data > $MITO_RESULT_DIR/r.txt;"
        "mkdir $MITO_EXEC_DIR/sub; echo trace > $MITO_EXEC_DIR/sub/e.txt; exit 3"
    )
    task = coordinator.add_task("sh", "-c", script, terminal_output=True)
    start_worker()
    assert committed(task) == {"exit_status": 3 * 256, "msg": None}
    assert task.ops == ["Finish", "Upload", "Upload", "Upload", "Commit"]
    result = coordinator.store[f"artifact/{task.uuid}/result"]
    assert content(result, "result/r.txt") == b"data\n"
    exec_log = coordinator.store[f"artifact/{task.uuid}/exec-log"]
    assert content(exec_log, "exec-log/sub/e.txt") == b"trace\n"
    std_log = coordinator.store[f"artifact/{task.uuid}/std-log"]
    assert content(std_log, "std-log/stdout.log") == b"out\n"
    assert content(std_log, "std-log/stderr.log") == b"err\n"
    assert members(std_log)["std-log/stdout.log"].mode == 0o664


def test_a_task_without_output_reports_only_finish_and_commit(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    task = coordinator.add_task("echo", "nobody listens")
    start_worker()
    assert committed(task) == {"exit_status": 0, "msg": None}
    assert task.ops == ["Finish", "Commit"]


def test_the_command_sees_its_names_and_cannot_override_them(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    envs = {"MITO_TASK_UUID": "forged", "MITO_RESULT_DIR": "/", "MITOSIS_X": "1", "OWN": "a=b c"}
    task = coordinator.add_task("env", "-0", terminal_output=True, envs=envs)
    task.upstream = uuid4()
    task.extra["attempt"] = 4
    worker = start_worker(KEEP=os.fsdecode(b"m\xff"), MITO_TAGS="a")
    committed(task)
    output = content(coordinator.store[f"artifact/{task.uuid}/std-log"], "std-log/stdout.log")
    seen = dict(line.split("=", 1) for line in os.fsdecode(output).split("\0") if line)
    root = worker.cache / "mitosis" / str(next(iter(coordinator.workers)))
    assert seen["MITO_TASK_UUID"] == str(task.uuid)
    assert seen["MITO_UPSTREAM_TASK_UUID"] == str(task.upstream)
    assert seen["MITOSIS_TASK_ATTEMPT"] == "4"
    assert Path(seen["MITO_RESULT_DIR"]) == root / "result"
    assert Path(seen["MITO_EXEC_DIR"]) == root / "exec"
    assert Path(seen["MITO_RESOURCE_DIR"]) == root / "resource"
    assert Path(seen["MITO_NEW_TASK"]).parent == root
    assert (seen["OWN"], seen["KEEP"]) == ("a=b c", os.fsdecode(b"m\xff"))
    assert not {"MITO_PASSWORD", "MITO_TAGS", "MITOSIS_X"} & set(seen)


def test_the_command_has_a_null_stdin_its_own_session_and_default_signals(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    script = (
        "readlink /proc/self/fd/0; ls /proc/$$/fd | wc -l; ps -o sid= -p $$; echo $$;"
        "grep -E 'SigIgn|SigBlk' /proc/$$/status"
    )
    task = coordinator.add_task("bash", "-c", script, terminal_output=True)
    start_worker()
    committed(task)
    output = content(coordinator.store[f"artifact/{task.uuid}/std-log"], "std-log/stdout.log")
    stdin, _fds, session, pid, blocked, ignored = output.decode().split("\n")[:6]
    assert stdin == "/dev/null"
    assert session.strip() == pid
    assert int(blocked.split()[1], 16) == 0
    # glibc's posix_spawn leaves its two private signals, 32 and 33, ignored in every child.
    assert int(ignored.split()[1], 16) & ~0x180000000 == 0


def test_leading_assignments_work_as_env_arguments(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    task = coordinator.add_task("COLOUR=blue", "sh", "-c", "test $COLOUR = blue")
    start_worker()
    assert committed(task)["exit_status"] == 0


def test_odd_arguments_arrive_byte_for_byte(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    odd = ["", " ", "a\nb", "'\"$(x)`", "é漢😀", "-", "--", "\x01\x7f"]
    task = coordinator.add_task("printf", "%s\\0", *odd, terminal_output=True)
    start_worker()
    assert committed(task)["exit_status"] == 0
    output = content(coordinator.store[f"artifact/{task.uuid}/std-log"], "std-log/stdout.log")
    assert output.decode().split("\0")[:-1] == odd


def test_a_command_that_does_not_exist_finishes_with_127(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    task = coordinator.add_task("no-such-program", envs={"PATH": "/usr/bin:/bin"})
    start_worker()
    assert committed(task) == {"exit_status": 127 * 256, "msg": None}


def test_a_command_killed_by_a_signal_reports_the_raw_wait_status(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    task = coordinator.add_task("sh", "-c", "kill -SEGV $$")
    start_worker()
    status = committed(task)["exit_status"]
    assert isinstance(status, int)
    assert os.WTERMSIG(status) == 11


def test_arguments_that_cannot_be_run_are_settled_and_the_next_task_runs(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    nul = coordinator.add_task("echo", "a\0b")
    bad_name = coordinator.add_task("true", envs={"A=B": "c"})
    too_long = coordinator.add_task("true", "x" * 200_000, terminal_output=True)
    bad_shape = coordinator.add_task("true")
    bad_shape.spec = {"args": "not a list"}
    good = coordinator.add_task("true")
    start_worker()
    for task in (nul, bad_name, bad_shape):
        assert committed(task) == {"exit_status": 125 * 256, "msg": None}
        assert task.ops == ["Cancel", "Commit"]
    assert committed(too_long) == {"exit_status": 125 * 256, "msg": None}
    reason = content(coordinator.store[f"artifact/{too_long.uuid}/std-log"], "std-log/stderr.log")
    assert b"Argument list too long" in reason
    assert committed(good)["exit_status"] == 0


def test_nothing_of_one_task_is_there_for_the_next(
    coordinator: FakeCoordinator, start_worker: StartWorker, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("keep")
    first = (
        "echo x > $MITO_RESULT_DIR/a; echo x > $MITO_EXEC_DIR/b; mkdir -p $MITO_RESOURCE_DIR/d/e;"
        "chmod 500 $MITO_RESOURCE_DIR/d; touch $(dirname $MITO_NEW_TASK)/stray;"
        f"rm -rf $MITO_EXEC_DIR; ln -s {outside} $MITO_EXEC_DIR; chmod 000 $MITO_RESOURCE_DIR"
    )
    dirty = coordinator.add_task("sh", "-c", first)
    script = "find $(dirname $MITO_NEW_TASK) -mindepth 1 -printf '%P %y %m\\n' | sort"
    clean = coordinator.add_task("sh", "-c", script, terminal_output=True)
    start_worker()
    committed(dirty)
    committed(clean)
    output = content(coordinator.store[f"artifact/{clean.uuid}/std-log"], "std-log/stdout.log")
    assert output.decode().split("\n") == [
        *(".lock f 600", "exec d 700", "resource d 700", "result d 700", "spool d 700"),
        *("std d 700", "std/stderr.log f 600", "std/stdout.log f 600", ""),
    ]
    assert (outside / "precious").read_text() == "keep"
    assert f"artifact/{dirty.uuid}/exec-log" not in coordinator.store


def test_a_follow_up_task_is_submitted(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    request = {
        "group_name": USER,
        "tags": [],
        "labels": [],
        "timeout": "1m",
        "priority": 0,
        "task_spec": {"args": ["true"]},
    }
    task = coordinator.add_task("sh", "-c", f"echo '{json.dumps(request)}' > $MITO_NEW_TASK")
    start_worker()
    assert committed(task) == {"exit_status": 0, "msg": None}
    assert task.ops == ["Finish", "Submit", "Commit"]
    follower = coordinator.tasks[-1]
    assert (follower.upstream, follower.spec) == (task.uuid, {"args": ["true"]})


def test_a_follow_up_that_is_not_accepted_is_named_in_the_result(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    not_json = coordinator.add_task("sh", "-c", "echo '{' > $MITO_NEW_TASK")
    refused = coordinator.add_task("sh", "-c", "echo '{}' > $MITO_NEW_TASK")
    a_pipe = coordinator.add_task("sh", "-c", "mkfifo $MITO_NEW_TASK")
    blank = coordinator.add_task("sh", "-c", "echo ' ' > $MITO_NEW_TASK")
    start_worker()
    for task in (not_json, refused, a_pipe):
        assert committed(task) == {"exit_status": 0, "msg": "SubmitNewTaskFailed"}
    assert committed(blank) == {"exit_status": 0, "msg": None}


def test_the_worker_logs_in_keeps_the_token_and_registers_what_it_was_told(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    flags = (
        "--tags",
        "gpu,big",
        "--labels",
        "rack-1",
        "--groups",
        "lab:admin,ci",
        "--lifetime",
        "1d",
    )
    worker = start_worker(*flags)
    wait_until(lambda: coordinator.heartbeats)
    assert coordinator.registrations == [
        {
            "tags": ["gpu", "big"],
            "labels": ["rack-1"],
            "groups": ["lab:admin", "ci"],
            "lifetime": "1day",
        }
    ]
    file = worker.config / "mitosis" / "credentials"
    assert file.read_text() == f"{USER}:user-token-1\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_kept_token_is_used_instead_of_the_password(
    coordinator: FakeCoordinator, start_worker: StartWorker, tmp_path: Path
) -> None:
    coordinator.user_tokens.add("kept")
    file = tmp_path / "credentials"
    file.write_text(f"bob:other\n{USER}:kept\n")
    start_worker("--credential-path", str(file), MITO_PASSWORD="wrong")
    wait_until(lambda: coordinator.registrations)
    assert not coordinator.logins


def test_the_password_can_come_from_stdin(coordinator: FakeCoordinator, tmp_path: Path) -> None:
    worker = subprocess.Popen(
        [
            *(sys.executable, "-m", "nodeagent", "worker", "--independent", "--password-stdin"),
            *("-u", USER, "-c", coordinator.http.url, "--cache-dir", str(tmp_path)),
        ],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MITO_PASSWORD": "wrong"},
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert worker.stdin is not None
    worker.stdin.write(f"{PASSWORD}\n".encode())
    worker.stdin.close()
    wait_until(lambda: coordinator.registrations)
    worker.terminate()
    assert worker.wait(timeout=10) == 0


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--independent", "--polling-interval", "soon"], b"polling_interval"),
        (["--independent", "--config", "none.toml"], b"none.toml"),
        ([], b"--independent"),
    ],
)
def test_bad_flags_are_refused_before_anything_starts(flags: list[str], complaint: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodeagent", "worker", *flags], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert complaint in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_wrong_password_ends_the_worker_with_a_reason(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    worker = start_worker(MITO_PASSWORD="wrong")
    assert worker.wait() == 1
    (end,) = worker.events("worker.failed")
    assert "Wrong credentials" in end["reason"]


def test_no_secret_is_logged_or_visible_in_proc(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    task = coordinator.add_task("sh", "-c", "echo x > $MITO_RESULT_DIR/a", envs={"KEY": "canary"})
    worker = start_worker()
    committed(task)
    command_line = Path(f"/proc/{worker.process.pid}/cmdline").read_bytes()
    text = worker.log_file.read_text()
    for secret in ("correct horse", "canary", "user-token", "worker-token"):
        assert secret not in text
        assert secret.encode() not in command_line
