"""What node agents survive: dead workers, poison tasks, their own death, an absent coordinator."""

import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.agent_lab import BRISK, AgentLab, RunningAgent, is_up, living
from tests.e2e.cluster import Cluster
from tests.figures import Figure
from tests.harness import TestServices
from tests.integration.workers.live_user import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# The issue of a long absence is the same after seconds as after minutes; a longer one on demand.
ABSENCE_S = float(os.environ.get("ABSENCE_SECONDS", "20"))


@pytest.fixture(scope="module")
def lab(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentLab]:
    with Cluster(tmp_path_factory.mktemp("faults"), environment=BRISK) as cluster:
        found = AgentLab(cluster)
        yield found
        found.close()


@pytest.fixture
def marker() -> Iterator[str]:
    """Marks processes of one test by their environment; none may be left."""
    mark = f"marker-{uuid.uuid4()}"
    yield mark
    for process in living(mark):
        process.kill()


@pytest.fixture(scope="module")
def agents(lab: AgentLab) -> Iterator[list[RunningAgent]]:
    with lab.agent("one") as one, lab.agent("two") as two:
        lab.wait_for_managers(2)
        yield [one, two]


def worker_of(process: psutil.Process) -> psutil.Process:
    """The worker above a task's process: agent, fork server, worker, launcher, command."""
    above = process.parents()
    [agent] = [
        at for at, one in enumerate(above) if one.cmdline()[1:4] == ["-m", "nodeagent", "run"]
    ]
    return above[agent - 2]


@pytest.mark.alone
@pytest.mark.usefixtures("agents")
def test_the_task_of_a_killed_worker_is_tried_again(
    lab: AgentLab, marker: str, open_dir: Path, figure: Figure
) -> None:
    gate = open_dir / "gate"
    suite = lab.suite()
    task = lab.sh(suite, f"test -e {gate} || sleep 600", envs={"MARK": marker})
    [sleeper] = eventually(lambda: [p for p in living(marker) if p.name() == "sleep"], within_s=60)
    gate.touch()
    worker = worker_of(sleeper)
    server = psutil.Process(worker.ppid())
    # With launchers: the fork server adopts that of the killed worker.
    before = {child.pid for child in server.children(recursive=True)}
    worker.kill()
    killed_at = time.monotonic()
    eventually(lambda: {child.pid for child in server.children()} - before, within_s=60)
    replaced_s = time.monotonic() - killed_at
    eventually(lambda: lab.user.task(task)["failures"] == 1, within_s=60)
    noticed_s = time.monotonic() - killed_at
    info = lab.user.ended(task, within_s=60)
    assert info["outcome"] == "succeeded"
    assert info["failures"] == 1
    figure("killed worker: its attempt requeued", noticed_s, "s", at_most=3)
    figure("killed worker: another in its place", replaced_s, "s", at_most=2)
    figure("killed worker: its task done elsewhere", time.monotonic() - killed_at, "s", at_most=30)
    lab.wait_complete(suite)
    assert not living(marker)


@pytest.mark.usefixtures("agents")
def test_a_task_that_always_segfaults_fails_on_both_hosts_and_the_suite_completes(lab: AgentLab):
    suite = lab.suite()
    poison = lab.sh(suite, "kill -SEGV $$")
    good = lab.submit(suite, [("true",)] * 5)
    info = lab.user.ended(poison, within_s=120)
    assert info["outcome"] == "failed"
    # Two deaths on each of two hosts.
    assert info["failures"] == 4
    for one in good:
        assert lab.user.ended(one, within_s=60)["outcome"] == "succeeded"
    lab.wait_complete(suite)


@pytest.mark.cgroup
@pytest.mark.usefixtures("agents")
def test_a_task_over_its_memory_limit_ends_as_oom_and_its_neighbour_goes_on(lab: AgentLab):
    suite = lab.suite(limits={"memory": 64 << 20})
    hog = lab.submit(
        suite, [("python3", "-c", "x = bytearray(256 << 20); print(len(x))")], timeout="1m"
    )[0]
    neighbour = lab.sh(suite, "sleep 2; echo fine")
    info = lab.user.ended(hog, within_s=90)
    assert info["outcome"] == "oom"
    assert lab.user.ended(neighbour, within_s=60)["outcome"] == "succeeded"
    lab.wait_complete(suite)


DAEMON = (
    "import os, signal, sys, time\n"
    "if os.fork(): sys.exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "time.sleep(600)\n"
)


@pytest.mark.usefixtures("agents")
def test_nothing_of_a_task_survives_its_attempt(lab: AgentLab, marker: str):
    suite = lab.suite(limits={"pids": 64})
    tasks = lab.submit(
        suite,
        [
            ("python3", "-c", DAEMON),
            ("sh", "-c", "trap '' TERM; sleep 600 & sleep 600"),
            ("python3", "-c", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"),
        ],
        timeout="3s",
        envs={"MARK": marker},
    )
    ends = [lab.user.ended(one, within_s=120)["outcome"] for one in tasks]
    assert ends == ["succeeded", "timeout", "timeout"]
    lab.wait_complete(suite)
    assert not living(marker)


@pytest.mark.alone
def test_after_a_killed_agent_the_next_one_clears_up_and_the_suite_is_finished(
    lab: AgentLab, marker: str, open_dir: Path, figure: Figure
) -> None:
    gate, cleaned = open_dir / "gate", open_dir / "cleaned"
    suite = lab.suite(
        tags=["phoenix"],
        env_preparation={"args": ["true"], "timeout": "30s"},
        env_cleanup={"args": ["sh", "-c", f"echo x >> {cleaned}"], "timeout": "30s"},
    )
    tasks = lab.submit(
        suite, [("sh", "-c", f"test -e {gate} || sleep 600")] * 3, envs={"MARK": marker}
    )
    first = lab.start_agent("phoenix", "--tags", "phoenix")
    eventually(lambda: len([p for p in living(marker) if p.name() == "sleep"]) == 2, within_s=60)
    lab.cluster.expect_exit("phoenix")
    first.kill()
    gate.touch()
    links = lab.cluster.log("phoenix").count("link.up")
    with lab.agent("phoenix", "--tags", "phoenix"):
        eventually(lambda: lab.cluster.log("phoenix").count("link.up") > links, within_s=60)
        connected_at = time.monotonic()
        eventually(lambda: not any(_is_lost(lab.user.task(one)) for one in tasks), within_s=60)
        figure("killed agent: its tasks requeued", time.monotonic() - connected_at, "s", at_most=5)
        for one in tasks:
            assert lab.user.ended(one, within_s=120)["outcome"] == "succeeded"
        lab.wait_complete(suite)
        assert not living(marker)
    # Once for the life that was killed, once for the one that finished the suite.
    assert cleaned.read_text() == "x\nx\n"


def _is_lost(task: dict[str, Any]) -> bool:
    """Whether it still counts as run by the agent that was killed."""
    return task["attempt"] == 1 and task["state"] == "Running"


def _is_alive(process: psutil.Process) -> bool:
    """Whether it can still do anything; how soon the machine's init buries it is not our affair."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.alone
def test_a_killed_agent_leaves_no_process_behind(
    lab: AgentLab, marker: str, figure: Figure
) -> None:
    suite = lab.suite(tags=["orphans"])
    lab.submit(suite, [("sleep", "600")] * 2, envs={"MARK": marker})
    agent = lab.start_agent("orphans", "--tags", "orphans")
    eventually(lambda: len(living(marker)) >= 2, within_s=60)
    below = agent.tree()
    lab.cluster.expect_exit("orphans")
    agent.kill()
    killed_at = time.monotonic()
    eventually(lambda: not living(marker), within_s=10, what="the task's processes are gone")
    eventually(lambda: not any(map(_is_alive, below)), within_s=10, what="workers gone")
    figure("killed agent: its processes gone", time.monotonic() - killed_at, "s", at_most=2)
    lab.post(f"/suites/{suite}/cancel", {"reason": "over", "cancel_running_tasks": True})


def test_tasks_run_on_while_the_coordinator_is_away_and_all_results_arrive(
    lab: AgentLab, open_dir: Path
) -> None:
    cluster = lab.cluster
    suite = lab.suite(tags=["patient"], workers=2, prefetch=8)
    tasks = lab.submit(suite, [("sh", "-c", f"sleep 2; touch {open_dir}/$MITO_TASK_UUID")] * 8)
    with lab.agent("patient", "--tags", "patient"):
        eventually(lambda: len(list(open_dir.iterdir())) >= 1, within_s=60)
        web = cluster.child("web0")
        os.kill(web.pid, signal.SIGSTOP)
        try:
            stopped_at = time.monotonic()
            eventually(lambda: len(list(open_dir.iterdir())) >= 6, within_s=60, what="tasks go on")
            time.sleep(max(0.0, ABSENCE_S - (time.monotonic() - stopped_at)))
        finally:
            os.kill(web.pid, signal.SIGCONT)
        eventually(lambda: is_up(cluster.url), within_s=60)
        for one in tasks:
            info = lab.user.ended(one, within_s=120)
            assert (info["outcome"], info["attempt"]) == ("succeeded", 1)
        lab.wait_complete(suite)
