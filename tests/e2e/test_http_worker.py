"""A worker that knows only the existing API, as a process, against a running coordinator."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.e2e.cluster import Cluster
from tests.integration.workers.live_user import LiveUser, eventually, existing_worker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(cluster)
    yield found
    found.close()


@pytest.fixture(scope="module")
def _worker(user: LiveUser) -> Iterator[None]:
    with existing_worker(user, "existing"):
        yield


@pytest.mark.usefixtures("_worker")
def test_a_task_with_all_archives_and_output_is_completed(user: LiveUser):
    script = "echo out; echo err >&2; echo r > $MITO_RESULT_DIR/r.txt; echo e > $MITO_EXEC_DIR/e"
    uuid = user.submit("sh", "-c", script, terminal_output=True, envs={"X": "1"})
    info = user.ended(uuid)
    assert (info["state"], info["outcome"]) == ("Finished", "succeeded")
    assert info["result"] == {"exit_status": 0, "msg": None}
    assert info["reporter_uuid"] in {worker["worker_id"] for worker in user.workers()}
    assert user.archive(uuid, "result") == {"result/r.txt": b"r\n"}
    assert user.archive(uuid, "exec-log") == {"exec-log/e": b"e\n"}
    output = user.archive(uuid, "std-log")
    assert output == {"std-log/stdout.log": b"out\n", "std-log/stderr.log": b"err\n"}


@pytest.mark.usefixtures("_worker")
def test_the_raw_wait_status_reaches_the_user(user: LiveUser):
    failed = user.submit("sh", "-c", "exit 3")
    killed = user.submit("sh", "-c", "kill -9 $$")
    assert user.ended(failed)["result"] == {"exit_status": 3 * 256, "msg": None}
    assert user.ended(killed)["result"] == {"exit_status": 9, "msg": None}


@pytest.mark.usefixtures("_worker")
def test_a_timeout_is_cancelled(user: LiveUser):
    info = user.ended(user.submit("sleep", "60", timeout="1s"))
    assert (info["state"], info["outcome"]) == ("Cancelled", "timeout")
    assert info["result"]["msg"] == "ExecTimeout"


@pytest.mark.usefixtures("_worker")
def test_resources_come_from_attachments_and_other_tasks(user: LiveUser, tmp_path: Path):
    issued = user.call(
        "POST", f"/groups/{user.name}/attachments", json={"key": "in/data", "content_length": 4}
    )
    assert httpx2.put(issued["url"], content=b"data").status_code == 200
    first = user.submit("sh", "-c", "echo made > $MITO_RESULT_DIR/made.txt")
    user.ended(first)
    second = user.submit(
        "sh",
        "-c",
        "cd $MITO_RESOURCE_DIR && cat sub/data && tar xzf made.tar.gz && cat result/made.txt",
        terminal_output=True,
        resources=[
            {"remote_file": {"Attachment": {"key": "in/data"}}, "local_path": "sub/data"},
            {
                "remote_file": {"Artifact": {"uuid": first, "content_type": "result"}},
                "local_path": "made.tar.gz",
            },
        ],
    )
    assert user.ended(second)["result"] == {"exit_status": 0, "msg": None}
    assert user.archive(second, "std-log")["std-log/stdout.log"] == b"datamade\n"


@pytest.mark.usefixtures("_worker")
def test_a_missing_resource_ends_the_task(user: LiveUser):
    resource = {"remote_file": {"Attachment": {"key": "nothing"}}, "local_path": "x"}
    info = user.ended(user.submit("true", resources=[resource]))
    assert (info["state"], info["result"]["msg"]) == ("Cancelled", "ResourceNotFound")


@pytest.mark.usefixtures("_worker")
def test_a_task_may_submit_the_next_one(user: LiveUser):
    downstream = {
        "group_name": user.name,
        "tags": [],
        "labels": ["downstream"],
        "timeout": "1m",
        "priority": 0,
        "task_spec": {"args": ["echo", "next"], "terminal_output": True},
    }
    script = f"cat > $MITO_NEW_TASK <<'END'\n{json.dumps(downstream)}\nEND"
    info = user.ended(user.submit("sh", "-c", script))
    assert info["result"] == {"exit_status": 0, "msg": None}
    next_one = user.ended(info["downstream_task_uuid"])
    assert (next_one["upstream_task_uuid"], next_one["labels"]) == (info["uuid"], ["downstream"])
    assert next_one["outcome"] == "succeeded"


def test_sigterm_gives_the_task_back_to_another_worker(user: LiveUser, tmp_path: Path):
    gate = tmp_path / "gate"
    uuid = user.submit("sh", "-c", f"test -e {gate} || sleep 60", tags=("leave",))
    with existing_worker(user, "leaver", tags=("leave",)) as leaver:
        user.running(uuid)
        gate.touch()
        leaver.stop()
        assert eventually(lambda: leaver.poll() is not None)
    with existing_worker(user, "taker", tags=("leave",)):
        info = user.ended(uuid)
    assert (info["outcome"], info["attempt"], info["failures"]) == ("succeeded", 2, 0)


def test_a_graceful_shutdown_lets_it_finish_and_then_it_leaves(user: LiveUser):
    with existing_worker(user, "polite", tags=("polite",)) as polite:
        uuid = user.submit("sleep", "1", tags=("polite",))
        user.running(uuid)
        [worker] = [one for one in user.workers() if one["assigned_task_id"] == uuid]
        user.call("DELETE", f"/workers/{worker['worker_id']}")
        assert user.ended(uuid)["outcome"] == "succeeded"
        assert eventually(lambda: polite.poll() is not None) is True
        assert polite.poll() == 0
    assert worker["worker_id"] not in {one["worker_id"] for one in user.workers()}


GUIDE = Path(__file__).parents[2] / "docs" / "worker-guide.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_worker_of_the_guide_works_beats_and_leaves(user: LiveUser, tmp_path: Path):
    """The page's program as it is printed, from its registration to its SIGTERM."""
    [source] = blocks("python")
    program = tmp_path / "worker.py"
    program.write_text(source)
    registered = user.register(tags=["guide"])
    environment = {
        **user.cluster.environment,
        "MITOSIS_URL": user.cluster.url,
        "WORKER_ID": registered["worker_id"],
        "WORKER_TOKEN": registered["token"],
    }
    done = user.submit("sh", "-c", "exit $CODE", tags=("guide",), envs={"CODE": "3"})
    child = user.cluster.start_program("guide", sys.executable, str(program), env=environment)
    assert user.ended(done)["result"] == {"exit_status": 3 * 256, "msg": None}
    held = user.submit("sleep", "60", tags=("guide",))
    user.running(held)

    def listed() -> dict[str, object] | None:
        answer = user.call("GET", f"/api/workers/active?group_name={user.name}")
        found = [one for one in answer["workers"] if one["worker_id"] == registered["worker_id"]]
        return found[0] if found and found[0]["metadata"] else None

    shown = eventually(listed)
    assert (shown["status"], shown["active_tasks"]) == ("active", 1)
    assert "hostname" in str(shown["metadata"])
    user.cluster.expect_exit("guide")
    child.stop()
    assert child.poll() == 0, user.cluster.log("guide")
    task = user.task(held)
    assert (task["state"], task["failures"]) == ("Ready", 0), "it gave its task back"
    assert listed() is None
    [query] = blocks("sql")
    with psycopg.connect(user.cluster.database_url) as connection:
        rows = connection.execute(query.replace("'stale'", "'inactive'")).fetchall()
    assert registered["worker_id"] in {str(row[0]) for row in rows}
    user.call("DELETE", f"/tasks/{held}")
