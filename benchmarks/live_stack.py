"""An embedded stack for a benchmark, and a user and workers that speak HTTP to it."""

import hashlib
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil

from mitosis_stack.commands import down, read_credentials, status, up_detached
from mitosis_stack.layout import DataDir
from mitosis_stack.settings import read_settings


class LiveStack:
    """A running stack, its address and the database behind it."""

    def __init__(self, data_dir: Path) -> None:
        self.credentials = credentials = read_credentials(DataDir(data_dir))
        state = status(data_dir).state
        assert state is not None
        self.supervisor = psutil.Process(state.pid)
        web = psutil.Process(state.children["web"].pid)
        self.web_pid = web.pid
        self.environment = web.environ()
        self.database_url = self.environment["DATABASE_URL"]
        self.group = credentials.username
        self.http = httpx2.Client(base_url=credentials.url, timeout=120)
        self.log_in(credentials.username, credentials.password)

    def log_in(self, username: str, password: str) -> None:
        """Requests are this user's from now on."""
        digest = hashlib.md5(password.encode(), usedforsecurity=False).digest()
        body = {"username": username, "md5_password": list(digest), "retain": True}
        token = self.post("/login", body)["token"]
        self.http.headers["Authorization"] = f"Bearer {token}"

    def post(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
        return self.http.post(path, json=body, headers=headers).raise_for_status().json()

    def task(self, **changes: Any) -> dict[str, Any]:
        return {
            "group_name": self.group,
            "tags": [],
            "labels": ["bench"],
            "timeout": "1m",
            "priority": 0,
            "task_spec": {"args": ["true"]},
            **changes,
        }

    def register_worker(self) -> httpx2.Client:
        body = {"tags": [], "labels": [], "groups": [self.group], "lifetime": None}
        token = self.post("/workers", body)["token"]
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.Client(base_url=self.http.base_url, timeout=60, headers=headers)

    def submit_array(self, count: int, **changes: Any) -> None:
        """One request, a template and `count` rows."""
        task = self.task(**{"task_spec": {"args": ["true", "{n}"]}, **changes})
        body = {
            "template": task,
            "rows": [{"params": {"n": str(number)}} for number in range(count)],
        }
        self.post("/tasks/array", body, {"Idempotency-Key": uuid.uuid4().hex})


@contextmanager
def live_stack(agents: int = 0) -> Iterator[LiveStack]:
    with tempfile.TemporaryDirectory() as directory:
        settings = read_settings(
            data_dir=Path(directory) / "data", port=None, agents=agents, asgi_server="uvicorn"
        )
        up_detached(settings, lambda _line: None, lambda _credentials: None)
        try:
            stack = LiveStack(settings.data_dir)
            yield stack
            stack.http.close()
        finally:
            down(settings.data_dir, lambda _line: None)
