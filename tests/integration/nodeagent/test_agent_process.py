"""`nodeagent run` as an operator meets it: start, stop, tokens, outages, mistakes."""

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mitosis_stack.ports import pick_free
from mitosis_stack.process import Child, ChildSpec, spawn
from tests.e2e.agent_lab import AgentLab, RunningAgent, living
from tests.e2e.cluster import Cluster
from tests.harness import TestServices
from tests.integration.workers.live_user import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

# A lease that outlasts the absence of a coordinator in a test, with beats of a second.
CALM = "heartbeat_s=1,lease_ttl_s=60,sweep_s=1,pool_wait_s=1"
# Access tokens of seconds, so that a test sees several of them.
SHORT_TOKENS = f"{CALM},manager_access_s=5"


@pytest.fixture(scope="module")
def lab(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentLab]:
    environment = {"MITOSIS_POLICY": CALM}
    with Cluster(tmp_path_factory.mktemp("agentproc"), environment=environment) as cluster:
        found = AgentLab(cluster)
        yield found
        found.close()


def identity(agent: RunningAgent) -> dict[str, Any]:
    path = agent.data_dir / "identity.json"
    eventually(path.exists, within_s=60, what="an identity")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def events(lab: AgentLab, name: str) -> list[dict[str, Any]]:
    lines = lab.cluster.log(name).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def count(lab: AgentLab, name: str, event: str) -> int:
    return sum(line["event"] == event for line in events(lab, name))


def wait_connected(lab: AgentLab, agent: RunningAgent, times: int = 1) -> None:
    eventually(
        lambda: count(lab, agent.name, "link.up") >= times or agent.child.poll() is not None,
        within_s=60,
        what=f"{agent.name} connects",
    )
    assert agent.child.poll() is None, lab.cluster.log(agent.name)


def wait_exit(child: Child, within_s: float = 60) -> int:
    deadline = time.monotonic() + within_s
    while (status := child.poll()) is None:
        assert time.monotonic() < deadline, "it does not end"
        time.sleep(0.05)
    return status


def test_it_registers_once_and_keeps_its_identity_private(lab: AgentLab) -> None:
    with lab.agent("keeper", "--tags", "gpu,x86", "--labels", "rack 7") as agent:
        wait_connected(lab, agent)
        first = identity(agent)
    assert stat.S_IMODE((agent.data_dir / "identity.json").stat().st_mode) == 0o600
    [manager] = [m for m in lab.managers() if m["uuid"] == first["manager_uuid"]]
    assert (sorted(manager["tags"]), manager["labels"]) == (["gpu", "x86"], ["rack 7"])
    # The user's token is not needed any more.
    lab.token_file.rename(lab.token_file.with_suffix(".away"))
    try:
        with lab.agent("keeper") as agent:
            wait_connected(lab, agent, times=2)
            assert identity(agent)["manager_uuid"] == first["manager_uuid"]
    finally:
        lab.token_file.with_suffix(".away").rename(lab.token_file)
    log = lab.cluster.log("keeper")
    for secret in (first["tokens"]["token"], first["tokens"]["refresh_token"]):
        assert secret not in log


def test_tokens_rotate_before_they_expire_and_the_agent_stays_connected(
    services: TestServices, tmp_path: Path
) -> None:
    with Cluster(tmp_path, environment={"MITOSIS_POLICY": SHORT_TOKENS}) as cluster:
        lab = AgentLab(cluster)
        with lab.agent("rotator") as agent:
            wait_connected(lab, agent)
            first = identity(agent)["tokens"]
            eventually(
                lambda: count(lab, "rotator", "identity.token_rotated") >= 3,
                within_s=60,
                what="three rotations",
            )
            later = identity(agent)["tokens"]
            assert agent.child.poll() is None
            assert later["token"] != first["token"]
            assert later["refresh_token"] != first["refresh_token"]
            [manager] = lab.managers()
            assert manager["state"] == "Idle"
        assert stat.S_IMODE((agent.data_dir / "identity.json").stat().st_mode) == 0o600
        lab.close()


def test_a_second_agent_of_the_same_name_is_turned_away(lab: AgentLab) -> None:
    with lab.agent("first") as agent:
        wait_connected(lab, agent)
        argv = agent.child.spec.argv
        instance = argv[argv.index("--instance") + 1]
        second = _run(lab, "--instance", instance, "--data-dir",
                      str(agent.data_dir.with_name("other")))  # fmt: skip
        assert second.returncode == 3
        assert f"already runs here (pid {agent.child.pid})" in second.stderr
        third = _run(lab, "--instance", "another", "--data-dir", str(agent.data_dir))
        assert third.returncode == 3
        assert "already uses" in third.stderr


def test_a_copied_identity_ends_the_agent_that_had_it_first(lab: AgentLab) -> None:
    with lab.agent("original") as original:
        wait_connected(lab, original)
        stolen = (original.data_dir / "identity.json").read_bytes()
        home = lab.cluster.root / "agent-clone" / "data"
        home.mkdir(parents=True, exist_ok=True)
        (home / "identity.json").write_bytes(stolen)
        with lab.agent("clone") as clone:
            wait_connected(lab, clone)
            assert wait_exit(original.child) == 4
    assert "under this agent's identity" in lab.cluster.log("original")


def test_sigterm_is_polite_and_ends_with_zero(lab: AgentLab) -> None:
    with lab.agent("polite") as agent:
        wait_connected(lab, agent)
        agent.child.signal(signal.SIGTERM)
        assert wait_exit(agent.child) == 0
        assert events(lab, "polite")[-1]["event"] == "agent.left"


def test_revoked_agents_leave_with_a_reason(lab: AgentLab) -> None:
    with lab.agent("revoked") as agent:
        wait_connected(lab, agent)
        lab.post(f"/managers/{identity(agent)['manager_uuid']}/revoke", {})
        assert wait_exit(agent.child) == 1
    last = events(lab, "revoked")[-1]
    assert (last["event"], last["kind"]) == ("agent.failed", "AuthRejected")


def test_a_second_sigterm_leaves_at_once_and_nothing_runs_on(lab: AgentLab) -> None:
    mark = uuid4().hex
    with lab.agent("hasty", "--grace", "10m", "--tags", mark) as agent:
        wait_connected(lab, agent)
        suite = lab.suite(tags=[mark], workers=1, prefetch=0)
        lab.submit(suite, [("sleep", "600")], envs={"MARK": mark})
        eventually(lambda: living(mark), within_s=60, what="the task runs")
        agent.child.signal(signal.SIGTERM)
        eventually(lambda: count(lab, "hasty", "agent.stopping") >= 1, what="it has heard")
        time.sleep(1.0)
        assert agent.child.poll() is None
        assert living(mark)
        agent.child.signal(signal.SIGTERM)
        assert wait_exit(agent.child, within_s=20) == 1
        eventually(lambda: not living(mark), within_s=10, what="nothing is left")
    lab.post(f"/suites/{suite}/cancel", {"reason": "test", "cancel_running_tasks": True})


def test_what_was_finished_while_nobody_listened_is_told_by_the_next_life(lab: AgentLab) -> None:
    """The coordinator is away when tasks end, and then the agent is killed, too."""
    mark = uuid4().hex
    with lab.agent("heir", "--tags", mark) as agent:
        wait_connected(lab, agent)
        suite = lab.suite(tags=[mark], workers=2, prefetch=0)
        uuids = lab.submit(suite, [("sleep", "4")] * 2, envs={"MARK": mark})
        eventually(lambda: len(living(mark)) == 2, within_s=60, what="both tasks run")
        lab.cluster.kill("web0")
        eventually(lambda: not living(mark), within_s=60, what="both tasks end")
        eventually(lambda: len(unsent(agent)) == 2, what="their results are kept")
        agent.kill()
        assert wait_exit(agent.child) == -signal.SIGKILL
        assert len(unsent(agent)) == 2
        restart_web(lab.cluster)
        with lab.agent("heir") as heir:
            lab.wait_complete(suite)
            tasks = {task["uuid"]: task for task in lab.tasks(suite)}
            assert {tasks[uuid]["outcome"] for uuid in uuids} == {"succeeded"}
            eventually(lambda: unsent(heir) == [], what="nothing is left to tell")


def test_a_coordinator_that_restarts_is_found_again(lab: AgentLab) -> None:
    with lab.agent("patient") as agent:
        wait_connected(lab, agent)
        lab.cluster.kill("web0")
        eventually(lambda: count(lab, "patient", "link.down") >= 1, what="the loss")
        time.sleep(2.0)
        assert agent.child.poll() is None
        restart_web(lab.cluster)
        wait_connected(lab, agent, times=2)
        mine = identity(agent)["manager_uuid"]
        assert [m["state"] for m in lab.managers() if m["uuid"] == mine] == ["Idle"]


def unsent(agent: RunningAgent) -> list[bytes]:
    """The lines in its outbox, as any other program sees them."""
    with closing(sqlite3.connect(agent.data_dir / "outbox.sqlite")) as db:
        return [line for (line,) in db.execute("SELECT line FROM lines")]


def restart_web(cluster: Cluster) -> None:
    [service] = [one for one in cluster._services() if one.name == "web0"]
    cluster.start(service)


def test_an_unreachable_coordinator_is_waited_for_with_one_clear_line(tmp_path: Path) -> None:
    port = pick_free(["nobody"], {})["nobody"]
    token = tmp_path / "token"
    token.write_text("whatever\n")
    child = _spawn(tmp_path, f"http://127.0.0.1:{port}", token)
    try:
        eventually(lambda: "retry.waiting" in (tmp_path / "log").read_text(), within_s=60)
        time.sleep(1.0)
        assert child.poll() is None
        lines = (tmp_path / "log").read_text().splitlines()
        waiting = [json.loads(line) for line in lines if "retry.waiting" in line]
        assert waiting[0]["what"] == "register"
        assert "ConnectError" in waiting[0]["error"]
        assert not any("Traceback" in line for line in lines)
        child.signal(signal.SIGTERM)
        assert wait_exit(child) == 0
    finally:
        child.kill()


def test_a_bad_token_is_refused_at_once(lab: AgentLab, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("not-a-token\n")
    child = _spawn(tmp_path, lab.cluster.url, token)
    assert wait_exit(child) == 1
    last = json.loads((tmp_path / "log").read_text().splitlines()[-1])
    assert (last["event"], last["kind"]) == ("agent.failed", "AuthRejected")
    assert "registration refused: status 401" in last["reason"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--token-file", "/t"), "no coordinator"),
        (("--coordinator", "http://c"), "no way to register"),
        (("--coordinator", "c", "--token-file", "/t"), "http:// or https://"),
        (("--coordinator", "http://c", "--token-file", "/t", "--transport", "x"), "one of: auto"),
        (("--coordinator", "http://c", "--no-such-flag"), "No such option"),
    ],
)
def test_wrong_flags_end_with_two_and_say_which(flags: tuple[str, ...], says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodeagent", "run", *flags],
        env={"PATH": os.environ["PATH"], "HOME": "/nowhere"},
        text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def _run(lab: AgentLab, *flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "nodeagent", "run", "--coordinator", lab.cluster.url]
    return subprocess.run(
        [*command, "--token-file", str(lab.token_file), *flags],
        env={"PATH": os.environ["PATH"], "HOME": str(lab.cluster.root)},
        text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


def _spawn(tmp_path: Path, url: str, token: Path) -> Child:
    argv = (sys.executable, "-m", "nodeagent", "run", "--coordinator", url, "--token-file",
            str(token), "--data-dir", str(tmp_path / "data"), "--lock-dir", str(tmp_path / "locks"),
            "--instance", f"t{os.getpid()}", "--log-format", "json")  # fmt: skip
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    return spawn(ChildSpec(name="agent", argv=argv, log=tmp_path / "log", env=env))
