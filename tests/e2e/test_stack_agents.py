"""`mitosis up --agents N`: node agents as parts of the embedded stack."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.e2e.stack_client import Stack, alive, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def stack(data_dir: Path) -> Iterator[Stack]:
    running = Stack(data_dir)
    running.up("--agents", "2")
    yield running
    running.down()


def call(stack: Stack, method: str, path: str, body: object = None) -> Any:
    headers = {"Authorization": f"Bearer {stack.token()}"}
    answer = httpx2.request(method, f"{stack.url}{path}", json=body, headers=headers, timeout=30)
    assert answer.status_code < 300, answer.text
    return answer.json()


def test_agents_of_the_stack_run_a_suite_and_stop_first(stack: Stack) -> None:
    group = stack.admin["username"]
    suite = call(stack, "POST", "/suites", {
        "group_name": group, "worker_schedule": {"worker_count": 1}, "settle_seconds": 1,
        "linger_seconds": 0,
    })["uuid"]  # fmt: skip
    task = {"group_name": group, "suite_uuid": suite, "tags": [], "labels": [], "timeout": "1m",
            "priority": 0, "task_spec": {"args": ["true"]}}  # fmt: skip
    call(stack, "POST", "/tasks/submit", {"tasks": [task] * 10})

    def is_over() -> bool:
        info = call(stack, "GET", f"/suites/{suite}")
        return bool(info["state"] == "Complete")

    eventually(is_over, within_s=120, what="the suite completes")
    query = {"group_name": group, "suite_uuid": suite, "limit": 100, "offset": 0, "count": False}
    tasks = call(stack, "POST", "/tasks/query", query)["tasks"]
    assert [task["outcome"] for task in tasks] == ["succeeded"] * 10
    managers = call(stack, "GET", "/managers")["managers"]
    assert {manager["state"] for manager in managers} <= {"Idle", "Executing", "Cleanup"}
    assert len(managers) == 2
    processes = stack.processes()
    stack.down()
    assert alive(processes) == []
    for number in (1, 2):
        log = (stack.data_dir / "logs" / f"agent-{number}.log").read_text()
        # Told to leave while the coordinator was there to hear of it.
        assert '"event": "agent.left"' in log.splitlines()[-1]
        assert "link.down" not in log
        assert stack.admin["password"] not in log
    # The same agents come back, and register no second time.
    stack.up("--agents", "2")
    again = call(stack, "GET", "/managers")["managers"]
    assert {m["uuid"] for m in again} == {m["uuid"] for m in managers}


def test_nothing_of_an_agent_outlives_a_killed_supervisor(data_dir: Path) -> None:
    stack = Stack(data_dir)
    stack.up("--agents", "1")
    processes = stack.processes()
    assert len(psutil.Process(stack.child_pid("agent-1")).children(recursive=True)) >= 1
    os.kill(stack.supervisor_pid, signal.SIGKILL)
    eventually(lambda: not alive(processes), within_s=20, what="everything is gone")
