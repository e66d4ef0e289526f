"""The small part of the HTTP API that the demo needs, as any script would call it."""

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from mitosis_stack.commands import Credentials
from mitosis_stack.errors import StackError

_PHASES = {
    "Preparing": "preparing the host",
    "Executing": "running tasks",
    "Cleanup": "cleaning up the host",
}


@dataclass(frozen=True)
class SuiteProgress:
    """Where a suite stands."""

    state: str
    ended: int
    phase: str
    is_over: bool


class DemoClient:
    """Logged in as the generated admin."""

    def __init__(self, credentials: Credentials) -> None:
        self.group = credentials.username
        self._http = httpx2.Client(base_url=credentials.url, timeout=30)
        # The wire form of a password on this API: the bytes of its MD5 digest.
        digest = hashlib.md5(credentials.password.encode(), usedforsecurity=False).digest()
        answer = self._post(
            "/login",
            {"username": credentials.username, "md5_password": list(digest), "retain": True},
        )
        self._http.headers["Authorization"] = f"Bearer {answer['token']}"

    def wait_for_manager(self, *, within_s: float) -> None:
        """Until a node agent is connected; raises StackError."""
        deadline = time.monotonic() + within_s
        while not any(one["state"] != "Offline" for one in self._managers()):
            if time.monotonic() > deadline:
                msg = f"no node agent connected within {within_s:.0f} s; see its log"
                raise StackError(msg)
            time.sleep(0.1)

    def create_suite(self, spec: Mapping[str, object]) -> str:
        return str(self._post("/suites", spec)["uuid"])

    def close_suite(self, suite_uuid: str) -> None:
        """No more tasks will come: it completes with its last one."""
        self._post(f"/suites/{suite_uuid}/close", {})

    def submit(self, tasks: list[dict[str, Any]]) -> list[str]:
        results = self._post("/tasks/submit", {"tasks": tasks})["results"]
        return [result["Ok"]["uuid"] for result in results]

    def progress(self, suite_uuid: str) -> SuiteProgress:
        suite = self._get(f"/suites/{suite_uuid}")
        engaged = [
            one["state"] for one in self._managers() if one["assigned_suite_uuid"] == suite_uuid
        ]
        phase = next((_PHASES[state] for state in engaged if state in _PHASES), "waiting")
        is_complete = suite["state"] == "Complete"
        return SuiteProgress(
            state=suite["state"],
            ended=suite["total_tasks"] - suite["pending_tasks"],
            phase="done" if is_complete and not engaged else phase,
            is_over=is_complete and not suite["active_managers"],
        )

    def tasks(self, suite_uuid: str) -> list[dict[str, Any]]:
        body = {"group_name": self.group, "suite_uuid": suite_uuid, "limit": 1000, "offset": 0,
                "count": False}  # fmt: skip
        listed: list[dict[str, Any]] = self._post("/tasks/query", body)["tasks"]
        return listed

    def stderr_of(self, task_uuid: str) -> str:
        answer = self._http.get(f"/tasks/{task_uuid}/logs", params={"stream": "stderr"})
        return answer.raise_for_status().text

    def exit_status_of(self, task: Mapping[str, Any]) -> str:
        result = task["result"] or {}
        return str(os.waitstatus_to_exitcode(result.get("exit_status", 0)))

    def download(self, task_uuid: str, content_type: str) -> bytes:
        url = self._get(f"/tasks/{task_uuid}/download/artifacts/{content_type}")["url"]
        # The address carries its own permission; the token is for the coordinator alone.
        return httpx2.get(url, timeout=30).raise_for_status().content

    def close(self) -> None:
        self._http.close()

    def _managers(self) -> list[dict[str, Any]]:
        managers: list[dict[str, Any]] = self._get("/managers")["managers"]
        return managers

    def _get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._http.get(path).raise_for_status().json()
        return answer

    def _post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        answer: dict[str, Any] = self._http.post(path, json=body).raise_for_status().json()
        return answer
