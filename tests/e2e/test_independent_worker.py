"""`nodeagent worker --independent` against a running coordinator, from registration to leaving."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.cluster import Cluster
from tests.integration.workers.live_user import LiveUser, eventually, own_worker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(cluster)
    yield found
    found.close()


@pytest.fixture(scope="module")
def _worker(user: LiveUser) -> Iterator[None]:
    with own_worker(user, "ours"):
        yield


@pytest.mark.usefixtures("_worker")
def test_a_task_with_archives_and_terminal_output_is_completed(user: LiveUser):
    script = "echo out; echo err >&2; echo r > $MITO_RESULT_DIR/r.txt; echo e > $MITO_EXEC_DIR/e"
    uuid = user.submit("sh", "-c", script, terminal_output=True)
    info = user.ended(uuid)
    assert (info["state"], info["outcome"]) == ("Finished", "succeeded")
    assert user.archive(uuid, "result")["result/r.txt"] == b"r\n"
    assert user.archive(uuid, "exec-log")["exec-log/e"] == b"e\n"
    output = user.archive(uuid, "std-log")
    assert output["std-log/stdout.log"] == b"out\n"
    assert output["std-log/stderr.log"] == b"err\n"


@pytest.mark.usefixtures("_worker")
def test_the_command_knows_its_task_and_attempt(user: LiveUser):
    uuid = user.submit(
        "sh", "-c", "echo $MITO_TASK_UUID $MITOSIS_TASK_ATTEMPT", terminal_output=True
    )
    user.ended(uuid)
    assert user.archive(uuid, "std-log")["std-log/stdout.log"].decode() == f"{uuid} 1\n"


@pytest.mark.usefixtures("_worker")
def test_output_can_be_read_while_the_command_runs(user: LiveUser, tmp_path: Path):
    gate = tmp_path / "gate"
    script = f"echo early; while ! test -e {gate}; do sleep 0.1; done; echo late"
    uuid = user.submit("sh", "-c", script)
    path = f"/tasks/{uuid}/logs?stream=stdout&offset=0"
    eventually(lambda: user.http.get(path).content == b"early\n", what="live output")
    assert user.task(uuid)["state"] == "Running"
    gate.touch()
    user.ended(uuid)
    assert user.http.get(path).content == b"early\nlate\n"


@pytest.mark.usefixtures("_worker")
def test_a_command_over_its_timeout_is_stopped(user: LiveUser):
    info = user.ended(user.submit("sleep", "60", timeout="1s"))
    assert (info["state"], info["outcome"]) == ("Cancelled", "timeout")
    assert info["result"]["msg"] == "ExecTimeout"


@pytest.mark.usefixtures("_worker")
def test_a_cancellation_reaches_the_running_process(user: LiveUser, tmp_path: Path):
    pid_file = tmp_path / "pid"
    uuid = user.submit("sh", "-c", f"echo $$ > {pid_file}; exec sleep 300")
    eventually(lambda: pid_file.exists() and pid_file.read_text())
    pid = int(pid_file.read_text())
    assert psutil.pid_exists(pid)
    user.call("DELETE", f"/tasks/{uuid}")
    info = user.ended(uuid, within_s=15)
    assert (info["state"], info["outcome"]) == ("Cancelled", "cancelled")
    assert info["result"] == {"exit_status": 0, "msg": "UserCancellation"}
    eventually(lambda: not psutil.pid_exists(pid), within_s=10, what="the process is gone")


@pytest.mark.usefixtures("_worker")
def test_a_watched_task_is_waited_for(user: LiveUser, tmp_path: Path):
    gate = tmp_path / "gate"
    watched = user.submit("true", tags=("watched",))
    watcher = user.submit("test", "-e", str(gate), watch=[watched, "TaskCommitted"])
    user.running(watcher)
    gate.touch()
    with own_worker(user, "watched", "--tags", "watched"):
        user.ended(watched)
    assert user.ended(watcher)["result"] == {"exit_status": 0, "msg": None}


@pytest.mark.usefixtures("_worker")
def test_many_short_tasks_are_all_done_once(user: LiveUser, tmp_path: Path):
    log = tmp_path / "log"
    uuids = [user.submit("sh", "-c", f"echo $MITO_TASK_UUID >> {log}") for _ in range(25)]
    for uuid in uuids:
        assert user.ended(uuid)["outcome"] == "succeeded"
    assert sorted(log.read_text().split()) == sorted(uuids)


def test_sigterm_finishes_nothing_and_gives_the_task_back(user: LiveUser, tmp_path: Path):
    gate = tmp_path / "gate"
    uuid = user.submit("sh", "-c", f"test -e {gate} || sleep 300", tags=("leave",))
    with own_worker(user, "leaver", "--tags", "leave", "--grace", "0s") as leaver:
        user.running(uuid)
        gate.touch()
        leaver.signal(signal.SIGTERM)
        assert eventually(lambda: leaver.poll() is not None)
        assert leaver.poll() == 0
    with own_worker(user, "taker", "--tags", "leave"):
        info = user.ended(uuid)
    assert (info["outcome"], info["attempt"], info["failures"]) == ("succeeded", 2, 0)


def test_a_forced_shutdown_ends_worker_and_command(user: LiveUser, tmp_path: Path):
    pid_file = tmp_path / "pid"
    script = f"test -e {pid_file} || (echo $$ > {pid_file}; exec sleep 300)"
    uuid = user.submit("sh", "-c", script, tags=("force",))
    with own_worker(user, "forced", "--tags", "force") as forced:
        eventually(lambda: pid_file.exists() and pid_file.read_text())
        [worker] = [one for one in user.workers() if one["assigned_task_id"] == uuid]
        user.call("DELETE", f"/workers/{worker['worker_id']}?op=force")
        assert eventually(lambda: forced.poll() is not None, within_s=15)
    assert not psutil.pid_exists(int(pid_file.read_text()))
    assert user.task(uuid)["state"] == "Ready"
    user.call("DELETE", f"/tasks/{uuid}")
