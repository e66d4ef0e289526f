"""Node agents as real processes against a running coordinator, and a user who gives them suites."""

import os
import signal
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil

from mitosis_stack.process import Child
from tests.e2e.cluster import Cluster
from tests.integration.workers.live_user import LiveUser, eventually

# Beats and sweeps of seconds, so that a lost host is noticed within the time of a test.
BRISK = {"MITOSIS_POLICY": "heartbeat_s=1,lease_ttl_s=6,reaper_grace_s=0.5,sweep_s=1,pool_wait_s=1"}


class AgentLab:
    """The admin of a cluster, and the agents it has started."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.user = LiveUser(cluster)
        # Distinct for every lab, so that two test processes share no lock and no cgroup.
        self._suffix = uuid.uuid4().hex[:8]
        self._lives: list[Child] = []  # a name is started again after its process was killed
        self.token_file = cluster.root / "user.token"
        self.token_file.write_text(str(self.user.http.headers["Authorization"]).split(" ")[1])
        self.token_file.chmod(0o600)

    def close(self) -> None:
        for child in self._lives:
            child.kill()
        self.user.close()

    # Agents

    @contextmanager
    def agent(
        self, name: str, *flags: str, url: str | None = None, path: Path | None = None
    ) -> Iterator["RunningAgent"]:
        """`nodeagent run`, stopped with the block; its log is printed for a failing test."""
        running = self.start_agent(name, *flags, url=url, path=path)
        try:
            yield running
        finally:
            self.cluster.expect_exit(name)
            running.child.stop()
            print(self.cluster.log(name)[-8000:])

    def start_agent(
        self, name: str, *flags: str, url: str | None = None, path: Path | None = None
    ) -> "RunningAgent":
        """`path` goes before the project on the agent's PYTHONPATH."""
        home = self.cluster.root / f"agent-{name}"
        home.mkdir(exist_ok=True)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": os.pathsep.join(map(str, filter(None, (path, Path.cwd())))),
        }
        child = self.cluster.start_program(
            name,
            *(sys.executable, "-m", "nodeagent", "run"),
            *("--coordinator", url or self.cluster.url, "--token-file", str(self.token_file)),
            *("--instance", f"{name}-{self._suffix}"),
            *("--data-dir", str(home / "data"), "--groups", self.user.name),
            *("--log-format", "json", *flags),
            env=env,
        )
        self._lives.append(child)
        return RunningAgent(name, child, home / "data")

    def managers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.user.call("GET", "/managers")["managers"]
        return found

    def wait_for_managers(self, count: int, *, within_s: float = 60) -> list[dict[str, Any]]:
        """Until so many are connected."""

        def online() -> list[dict[str, Any]] | None:
            found = [one for one in self.managers() if one["state"] != "Offline"]
            return found if len(found) == count else None

        found = eventually(online, within_s=within_s, what=f"{count} managers")
        assert found is not None
        return found

    # Suites

    def suite(self, **spec: Any) -> str:
        plan = {"worker_count": spec.pop("workers", 2)}
        plan["task_prefetch_count"] = spec.pop("prefetch", 4)
        if "cpu_binding" in spec:
            plan["cpu_binding"] = spec.pop("cpu_binding")
        body = {
            "group_name": self.user.name,
            "name": "lab",
            "worker_schedule": plan,
            "settle_seconds": 1,
            "linger_seconds": 0,
            **spec,
        }
        return str(self.post("/suites", body)["uuid"])

    def submit(self, suite: str, commands: Sequence[Sequence[str]], **task: Any) -> list[str]:
        own = ("envs", "terminal_output", "watch")
        spec = {name: task.pop(name) for name in own if name in task}
        common = {
            "group_name": self.user.name,
            "suite_uuid": suite,
            "tags": [],
            "labels": [],
            "timeout": "5m",
            "priority": 0,
            **task,
        }
        tasks = [{**common, "task_spec": {"args": list(args), **spec}} for args in commands]
        results = self.post("/tasks/submit", {"tasks": tasks})["results"]
        return [result["Ok"]["uuid"] for result in results]

    def sh(self, suite: str, script: str, **task: Any) -> str:
        [uuid_] = self.submit(suite, [("sh", "-c", script)], **task)
        return uuid_

    def suite_info(self, suite: str) -> dict[str, Any]:
        info: dict[str, Any] = self.user.call("GET", f"/suites/{suite}")
        return info

    def wait_complete(self, suite: str, *, within_s: float = 90) -> dict[str, Any]:
        """Until the suite is complete and no host is engaged with it."""

        def over() -> dict[str, Any] | None:
            info = self.suite_info(suite)
            is_over = info["state"] == "Complete" and not info["active_managers"]
            return info if is_over else None

        info = eventually(over, within_s=within_s, what=f"suite {self.suite_info(suite)}")
        assert info is not None
        return info

    def post(self, path: str, body: object) -> Any:
        response = self.user.http.post(path, json=body)
        assert response.status_code < 300, (path, response.status_code, response.text)
        return response.json() if response.content else None

    def tasks(self, suite: str) -> list[dict[str, Any]]:
        body = {"group_name": self.user.name, "suite_uuid": suite, "limit": 1000, "offset": 0,
                "count": False}  # fmt: skip
        found: list[dict[str, Any]] = self.user.call("POST", "/tasks/query", json=body)["tasks"]
        return found


class RunningAgent:
    """One agent process and what it has started."""

    def __init__(self, name: str, child: Child, data_dir: Path) -> None:
        self.name = name
        self.child = child
        self.data_dir = data_dir

    def tree(self) -> list[psutil.Process]:
        """Everything below the agent."""
        try:
            return psutil.Process(self.child.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """kill -9 of the agent process alone, as the kernel's OOM killer would."""
        os.kill(self.child.pid, signal.SIGKILL)


def living(marker: str) -> list[psutil.Process]:
    """Processes that carry the marker in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MARK") == marker and process.status() != "zombie":
                found.append(process)
        except psutil.Error:
            continue
    return found


def archive_text(lab: AgentLab, task_uuid: str, kind: str, member: str) -> str:
    """One file of an artifact."""
    return lab.user.archive(task_uuid, kind)[member].decode()


def is_up(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/readyz", timeout=3).status_code == 200
    except httpx2.HTTPError:
        return False
