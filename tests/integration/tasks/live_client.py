"""A user of a running coordinator over plain HTTP, and a reader of its event streams."""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from tests.e2e.cluster import Cluster


class LiveUser:
    """Logged in for the life of a test."""

    def __init__(self, cluster: Cluster, name: str, password: str) -> None:
        self.name = name
        body = {
            "username": name,
            "md5_password": list(hashlib.md5(password.encode()).digest()),
            "retain": True,
        }
        token = httpx2.post(f"{cluster.url}/login", json=body).json()["token"]
        self.http = httpx2.Client(
            base_url=cluster.url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=20,
            limits=httpx2.Limits(max_connections=200),
        )

    def post(self, path: str, body: object, status: int = 200) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def submit(self, **changes: Any) -> str:
        spec = {"args": ["true"]}
        body = {
            "group_name": self.name,
            "tags": [],
            "labels": [],
            "timeout": "10m",
            "priority": 0,
            "task_spec": spec,
        }
        return str(self.post("/tasks", {**body, **changes})["uuid"])

    def register_worker(self) -> "LiveWorker":
        body = {"tags": [], "labels": [], "groups": [], "lifetime": None}
        made = self.post("/workers", body)
        return LiveWorker(str(self.http.base_url), made["token"])

    @contextmanager
    def watch(self, uuid: str, **headers: str) -> Iterator["EventReader"]:
        with self.http.stream("GET", f"/tasks/{uuid}/events", headers=headers) as answer:
            yield EventReader(answer)


class LiveWorker:
    """An independent worker as the existing one speaks."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx2.Client(base_url=url, headers=headers, timeout=20)

    def fetch(self) -> dict[str, Any]:
        task: dict[str, Any] = self.http.get("/workers/tasks").json()
        assert task is not None
        return task

    def report(self, attempt_id: int, op: object) -> None:
        answer = self.http.post("/workers/tasks", json={"id": attempt_id, "op": op})
        assert answer.status_code == 200, answer.text

    def commit(self, attempt_id: int, exit_status: int = 0) -> None:
        self.report(attempt_id, "Finish")
        self.report(attempt_id, {"Commit": {"exit_status": exit_status, "msg": None}})


class EventReader:
    """Reads server-sent events as a browser does."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self._lines = answer.iter_lines()

    def next(self, event: str | None = None) -> dict[str, Any]:
        """The next event (of this name): its `id`, `event` and decoded `data`."""
        for found in self:
            if event is None or found["event"] == event:
                return found
        raise AssertionError("the stream ended")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        fields: dict[str, Any] = {}
        for line in self._lines:
            if not line:
                if "data" in fields:
                    yield {"id": None, **fields, "data": json.loads(fields["data"])}
                fields = {}
            elif not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value


def eventually(check: Any, *, within_s: float = 10) -> Any:
    """The first true answer of `check`; fails after `within_s`."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")
