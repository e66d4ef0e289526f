"""Whole suites through real node agents: hooks, tasks, artifacts, cleanup, two hosts."""

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent_lab import BRISK, AgentLab, RunningAgent, archive_text, living
from tests.e2e.cluster import Cluster
from tests.figures import Figure
from tests.harness import TestServices
from tests.integration.workers.live_user import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def lab(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentLab]:
    with Cluster(tmp_path_factory.mktemp("agents"), environment=BRISK) as cluster:
        found = AgentLab(cluster)
        yield found
        found.close()


@pytest.fixture(scope="module")
def agents(lab: AgentLab) -> Iterator[list[RunningAgent]]:
    """Two agents, as on two hosts."""
    with lab.agent("one", "--tags", "first") as one, lab.agent("two", "--tags", "second") as two:
        lab.wait_for_managers(2)
        yield [one, two]


def explained(lab: AgentLab, suite: str) -> str:
    """All that `explain` says, as one text."""
    return json.dumps(lab.user.call("GET", f"/suites/{suite}/explain"))


@pytest.mark.usefixtures("agents")
def test_every_task_of_a_suite_runs_exactly_once_on_two_hosts(lab: AgentLab, open_dir: Path):
    suite = lab.suite()
    script = f'touch "{open_dir}/$MITO_TASK_UUID.$$"; echo $((6 * 7)) > "$MITO_RESULT_DIR/r"'
    uuids = lab.submit(suite, [("sh", "-c", script)] * 60)
    lab.wait_complete(suite)
    runs = Counter(entry.name.split(".")[0] for entry in open_dir.iterdir())
    assert runs == Counter(uuids)
    tasks = lab.tasks(suite)
    assert {task["uuid"] for task in tasks} == set(uuids)
    assert {task["outcome"] for task in tasks} == {"succeeded"}
    assert archive_text(lab, uuids[0], "result", "result/r") == "42\n"


@pytest.mark.usefixtures("agents")
def test_hooks_run_once_per_host_and_tasks_find_what_they_prepared(lab: AgentLab, open_dir: Path):
    note = open_dir / "hooks"
    prepare = f'echo "prep $MITOSIS_NODE_MANAGER_ID" >> {note}; echo data > $MITOSIS_SUITE_DIR/set'
    clean = f'echo "clean $MITOSIS_NODE_MANAGER_ID" >> {note}; chmod a+rw {note}'
    suite = lab.suite(
        env_preparation={"args": ["sh", "-ec", prepare], "timeout": "30s"},
        env_cleanup={"args": ["sh", "-ec", clean], "timeout": "30s"},
        tags=["first"],
    )
    read = ("sh", "-c", "cat $MITOSIS_SUITE_DIR/set")
    uuids = lab.submit(suite, [read] * 5, terminal_output=True)
    lab.wait_complete(suite)
    assert {task["outcome"] for task in lab.tasks(suite)} == {"succeeded"}
    assert archive_text(lab, uuids[0], "std-log", "std-log/stdout.log") == "data\n"
    [prep, cleaned] = note.read_text().splitlines()
    assert prep.replace("prep", "clean") == cleaned


@pytest.mark.usefixtures("agents")
def test_the_context_of_a_hook_cannot_be_overridden(lab: AgentLab, open_dir: Path):
    seen = open_dir / "env"
    suite = lab.suite(
        name="context",
        env_preparation={
            "args": ["sh", "-c", f"env > {seen}"],
            "timeout": "30s",
            "envs": {"MITOSIS_GROUP_NAME": "forged", "MINE": "kept"},
        },
        tags=["first"],
    )
    lab.sh(suite, "true")
    lab.wait_complete(suite)
    env = dict(line.split("=", 1) for line in seen.read_text().splitlines() if "=" in line)
    assert env["MITOSIS_GROUP_NAME"] == lab.user.name
    assert env["MITOSIS_TASK_SUITE_UUID"] == suite
    assert env["MITOSIS_TASK_SUITE_NAME"] == "context"
    assert env["MITOSIS_WORKER_COUNT"] == "2"
    assert uuid.UUID(env["MITOSIS_NODE_MANAGER_ID"])
    assert env["MINE"] == "kept"


@pytest.mark.usefixtures("agents")
def test_a_failing_command_fails_its_task_and_nothing_else(lab: AgentLab):
    suite = lab.suite()
    bad = lab.sh(suite, "echo no >&2; exit 3", terminal_output=True)
    good = lab.sh(suite, "true")
    info = lab.wait_complete(suite)
    assert (info["succeeded_tasks"], info["failed_tasks"]) == (1, 1)
    task = lab.user.task(bad)
    assert (task["outcome"], task["result"]["exit_status"]) == ("failed", 3 << 8)
    assert task["attempt"] == 1, "a plain exit is not tried again"
    assert lab.user.task(good)["outcome"] == "succeeded"
    assert archive_text(lab, bad, "std-log", "std-log/stderr.log") == "no\n"


@pytest.mark.usefixtures("agents")
def test_a_preparation_that_fails_blocks_the_suite_with_its_last_words(lab: AgentLab):
    hook = {"args": ["sh", "-c", "echo no disk here >&2; exit 9"], "timeout": "30s"}
    suite = lab.suite(env_preparation=hook, tags=["first"])
    lab.sh(suite, "true")
    eventually(lambda: "no disk here" in explained(lab, suite), within_s=60, what="the reason")
    assert "9" in explained(lab, suite)
    lab.post(f"/suites/{suite}/cancel", {"reason": "test"})


@pytest.mark.usefixtures("agents")
def test_a_preparation_over_its_timeout_is_stopped(lab: AgentLab):
    suite = lab.suite(env_preparation={"args": ["sleep", "600"], "timeout": "1s"}, tags=["second"])
    lab.sh(suite, "true")
    eventually(lambda: "timeout" in explained(lab, suite).lower(), within_s=60, what="the timeout")
    lab.post(f"/suites/{suite}/cancel", {"reason": "test"})


@pytest.mark.usefixtures("agents")
def test_a_cleanup_that_fails_does_not_hold_the_host(lab: AgentLab):
    hook = {"args": ["sh", "-c", "exit 1"], "timeout": "30s"}
    first = lab.suite(env_cleanup=hook, tags=["first"])
    lab.sh(first, "true")
    lab.wait_complete(first)
    second = lab.suite(tags=["first"])
    lab.sh(second, "true")
    lab.wait_complete(second)


@pytest.mark.usefixtures("agents")
def test_cancelling_a_suite_stops_what_runs_and_still_cleans_up(lab: AgentLab, open_dir: Path):
    cleaned = open_dir / "cleaned"
    started = open_dir / "started"
    suite = lab.suite(
        env_cleanup={"args": ["touch", str(cleaned)], "timeout": "30s"}, tags=["first"]
    )
    running = lab.sh(suite, f"touch {started}; sleep 600")
    waiting = lab.submit(suite, [("sleep", "600")] * 10)
    eventually(started.exists, within_s=60)
    lab.post(f"/suites/{suite}/cancel", {"reason": "enough", "cancel_running_tasks": True})
    assert lab.user.ended(running, within_s=30)["outcome"] == "cancelled"
    for one in waiting:
        assert lab.user.ended(one)["outcome"] == "cancelled"
    eventually(cleaned.exists, within_s=30, what="cleanup")
    eventually(lambda: not lab.suite_info(suite)["active_managers"], within_s=30)


@pytest.mark.usefixtures("agents")
def test_a_cancelled_task_stops_and_the_suite_goes_on(
    lab: AgentLab, open_dir: Path, figure: Figure
):
    started = open_dir / "started"
    suite = lab.suite()
    mark = uuid.uuid4().hex
    stubborn = f"trap '' TERM; (setsid sleep 600 &) ; touch {started}; while :; do sleep 1; done"
    long = lab.sh(suite, stubborn, envs={"MARK": mark})
    eventually(started.exists, within_s=60)
    lab.user.call("DELETE", f"/tasks/{long}")
    cancelled_at = time.monotonic()
    eventually(lambda: not living(mark), within_s=30, what="its processes are gone")
    took_s = time.monotonic() - cancelled_at
    figure("cancelled task: all its processes gone", took_s, "s", at_most=10)
    assert lab.user.ended(long, within_s=20)["outcome"] == "cancelled"
    after = lab.sh(suite, "true")
    assert lab.user.ended(after, within_s=60)["outcome"] == "succeeded"
    lab.wait_complete(suite)


@pytest.mark.usefixtures("agents")
def test_a_full_storage_costs_the_archive_and_not_the_task(lab: AgentLab):
    """As with independent workers: the task is committed without a message."""
    quota = f"/admin/groups/{lab.user.name}/storage-quota"
    suite = lab.suite()
    lab.post(quota, {"storage_quota": "=1"})
    try:
        task = lab.sh(suite, 'echo much > "$MITO_RESULT_DIR/file"')
        info = lab.user.ended(task, within_s=60)
    finally:
        lab.post(quota, {"storage_quota": "=100GB"})
    assert (info["outcome"], info["result"]["msg"]) == ("succeeded", None)
    missing = lab.user.http.get(f"/tasks/{task}/download/artifacts/result")
    assert missing.status_code == 404
    lab.wait_complete(suite)


@pytest.mark.usefixtures("agents")
def test_a_task_over_its_timeout_is_stopped(lab: AgentLab):
    suite = lab.suite()
    slow = lab.sh(suite, "sleep 600", timeout="1s")
    task = lab.user.ended(slow, within_s=60)
    assert (task["outcome"], task["result"]["msg"]) == ("timeout", "ExecTimeout")
    lab.wait_complete(suite)


@pytest.mark.usefixtures("agents")
def test_a_paused_suite_starts_nothing_until_it_is_resumed(lab: AgentLab):
    suite = lab.suite(settle_seconds=30)
    first = lab.sh(suite, "true")
    assert lab.user.ended(first, within_s=60)["outcome"] == "succeeded"
    lab.post(f"/suites/{suite}/pause", {})
    second = lab.sh(suite, "true")
    with pytest.raises(AssertionError):
        lab.user.ended(second, within_s=3)
    lab.post(f"/suites/{suite}/resume", {})
    assert lab.user.ended(second, within_s=60)["outcome"] == "succeeded"
    lab.post(f"/suites/{suite}/close", {})
    lab.wait_complete(suite)


@pytest.mark.usefixtures("agents")
def test_output_can_be_read_while_a_task_runs(lab: AgentLab, open_dir: Path):
    gate = open_dir / "gate"
    suite = lab.suite()
    task = lab.sh(suite, f"echo early; while ! test -e {gate}; do sleep 0.1; done; echo late")
    path = f"/tasks/{task}/logs?stream=stdout&offset=0"
    eventually(lambda: lab.user.http.get(path).content == b"early\n", within_s=60, what="output")
    gate.touch()
    assert lab.user.ended(task, within_s=60)["outcome"] == "succeeded"
    whole = b"early\nlate\n"
    eventually(lambda: lab.user.http.get(path).content == whole, within_s=20, what="the last words")
    lab.wait_complete(suite)


@pytest.mark.usefixtures("agents")
def test_a_task_may_submit_a_follow_up_into_its_suite(lab: AgentLab):
    suite = lab.suite()
    request = {
        "group_name": lab.user.name,
        "tags": [],
        "labels": [],
        "timeout": "1m",
        "priority": 0,
        "task_spec": {"args": ["true"]},
    }
    first = lab.sh(suite, f"echo '{json.dumps(request)}' > $MITO_NEW_TASK")
    lab.user.ended(first, within_s=60)
    info = lab.wait_complete(suite)
    assert info["succeeded_tasks"] == 2


@pytest.mark.usefixtures("agents")
def test_a_task_may_watch_another_one(lab: AgentLab, open_dir: Path):
    suite = lab.suite(workers=2)
    gate, seen = open_dir / "gate", open_dir / "seen"
    first = lab.sh(suite, f"while ! test -e {gate}; do sleep 0.1; done; touch {seen}")
    second = lab.sh(suite, f"test -e {seen}", watch=[first, "ExecFinished"])
    eventually(lambda: lab.user.task(first)["state"] == "Running", within_s=60)
    gate.touch()
    assert lab.user.ended(second, within_s=60)["outcome"] == "succeeded"
    lab.wait_complete(suite)
