"""A coordinator for worker tests: the worker side of the HTTP API and a store, in memory.

Answers exactly as the API reference says (states, statuses, bodies); extensions of our coordinator
are off unless a test turns them on. `assert_drained` says whether the worker broke a rule.
"""

import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import md5
from typing import Any
from uuid import UUID, uuid4

from mitosis_protocol.timestamps import format_legacy
from tests.fakes.tiny_http import Answer, Request, TinyHttp

USER = "ada"
PASSWORD = "correct horse"


@dataclass
class FakeTask:
    """One task and everything the worker said about it."""

    id: int
    spec: dict[str, Any]
    timeout: str = "1m"
    uuid: UUID = field(default_factory=uuid4)
    upstream: UUID | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    state: str = "Ready"
    is_archived: bool = False
    result: dict[str, Any] | None = None
    downstream: UUID | None = None
    assigned: UUID | None = None
    ops: list[str] = field(default_factory=list)
    fetches: int = 0

    def offer(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "uuid": str(self.uuid),
            "timeout": self.timeout,
            "upstream_task_uuid": self.upstream and str(self.upstream),
            "spec": self.spec,
            **self.extra,
        }

    def info(self) -> dict[str, Any]:
        moment = format_legacy(datetime.now(UTC))
        return {
            "uuid": str(self.uuid),
            "creator_username": USER,
            "group_name": USER,
            "task_id": self.id,
            "tags": [],
            "labels": [],
            "created_at": moment,
            "updated_at": moment,
            "state": self.state,
            "timeout": 60,
            "priority": 0,
            "spec": self.spec,
            "result": self.result,
            "upstream_task_uuid": self.upstream and str(self.upstream),
            "downstream_task_uuid": self.downstream and str(self.downstream),
            "reporter_uuid": None,
        }


class FakeCoordinator:
    """State and rules. Public attributes are for tests to set up and look at."""

    def __init__(self) -> None:
        self.http = TinyHttp(self._handle)
        self.lock = threading.RLock()
        self.tasks: list[FakeTask] = []
        self.workers: dict[UUID, str] = {}
        self.registrations: list[dict[str, Any]] = []
        self.user_tokens: set[str] = set()
        self.logins: list[dict[str, Any]] = []
        self.store: dict[str, bytes] = {}
        self.attachments: dict[str, str] = {}  # key -> name in the store, or "forbidden"
        self.artifact_sizes: dict[str, int] = {}
        self.is_quota_used = False
        self.heartbeat_answer: dict[str, Any] | None = None
        self.heartbeats = 0
        self.held: list[int] | None = None  # the last inventory a worker sent
        self.unregistered: list[UUID] = []
        self.logs: dict[tuple[UUID, str], bytearray] = {}
        self.violations: list[str] = []
        self._ids = iter(range(101, 1_000_000))

    def add_task(self, *args: str, timeout: str = "1m", **spec: Any) -> FakeTask:
        """Queue a command."""
        with self.lock:
            task = FakeTask(next(self._ids), {"args": list(args), **spec}, timeout)
            self.tasks.append(task)
            return task

    def add_attachment(self, key: str, data: bytes) -> None:
        with self.lock:
            self.store[f"attachment/{key}"] = data
            self.attachments[key] = f"attachment/{key}"

    def remove_workers(self) -> None:
        """As a forced shutdown: every further call is answered 401."""
        with self.lock:
            self.workers.clear()

    def assert_drained(self) -> None:
        assert not self.violations, self.violations

    def _handle(self, request: Request) -> Answer:
        with self.lock:
            if request.path.startswith("/store/"):
                return self._store(request)
            if request.path in ("/auth", "/login"):
                return self._session(request)
            if request.path == "/workers" and request.method == "POST":
                return self._register(request)
            worker = self._worker(request)
            if worker is None:
                return _error(401, "Authentication error: Invalid token")
            return self._worker_side(request, worker)

    def _session(self, request: Request) -> Answer:
        if request.path == "/auth":
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            if token in self.user_tokens:
                return Answer(body=USER.encode(), content_type="text/plain")
            return _error(401, "Authentication error: Invalid token")
        body = json.loads(request.body)
        self.logins.append(body)
        if (
            body["username"] != USER
            or bytes(body["md5_password"]) != md5(PASSWORD.encode()).digest()
        ):
            return _error(401, "Authentication error: Wrong credentials")
        token = f"user-token-{len(self.logins)}"
        self.user_tokens.add(token)
        return _json({"token": token})

    def _register(self, request: Request) -> Answer:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.user_tokens:
            return _error(401, "Authentication error: Invalid token")
        self.registrations.append(json.loads(request.body))
        worker = uuid4()
        self.workers[worker] = f"worker-token-{worker}"
        return _json({"worker_id": str(worker), "token": self.workers[worker], "redis_url": None})

    def _worker(self, request: Request) -> UUID | None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        return next((uuid for uuid, known in self.workers.items() if known == token), None)

    def _worker_side(self, request: Request, worker: UUID) -> Answer:  # noqa: PLR0911 - a route table
        match request.method, request.path.strip("/").split("/"):
            case "GET", ["workers", "tasks"]:
                return self._fetch(worker)
            case "POST", ["workers", "tasks"]:
                return self._report(json.loads(request.body), worker)
            case "GET", ["workers", "tasks", uuid]:
                return self._read(uuid)
            case "GET", ["workers", "tasks", uuid, "artifacts", kind]:
                return self._locate(f"artifact/{uuid}/{kind}")
            case "GET", ["workers", "tasks", _, "attachments", *key]:
                return self._attachment("/".join(key))
            case "POST", ["workers", "tasks", uuid, "logs"]:
                return self._log(UUID(uuid), request)
            case "POST", ["workers", "heartbeat"]:
                return self._heartbeat(request)
            case "DELETE", ["workers"]:
                return self._unregister(worker)
        self.violations.append(f"unknown route {request.method} {request.path}")
        return Answer(404)

    def _heartbeat(self, request: Request) -> Answer:
        self.heartbeats += 1
        if self.heartbeat_answer is None:
            if request.body or "content-type" in request.headers:
                self.violations.append("heartbeat with a body or a content type")
        elif request.body:
            self.held = json.loads(request.body)["held"]
        return _json(self.heartbeat_answer)

    def _fetch(self, worker: UUID) -> Answer:
        for task in self.tasks:
            if task.state == "Ready":
                task.state = "Running"
                task.assigned = worker
            elif not (task.state == "Running" and task.assigned == worker):
                continue
            # A worker that asks again while busy is handed the same attempt again.
            task.fetches += 1
            return _json(task.offer())
        return _json(None)

    def _read(self, uuid: str) -> Answer:
        task = self._by_uuid(uuid)
        if task is None:
            return _error(404, "Task not found")
        return _json({"info": task.info(), "artifacts": []})

    def _report(self, body: dict[str, Any], worker: UUID) -> Answer:
        task = next((t for t in self.tasks if t.id == body["id"]), None)
        if task is None or task.is_archived or task.assigned != worker:
            return _error(404, "Task not found")
        op = body["op"]
        name, value = (op, {}) if isinstance(op, str) else next(iter(op.items()))
        answer = self._apply(task, name, value)
        if answer.status == 200:
            task.ops.append(name)
        return answer

    def _apply(self, task: FakeTask, name: str, value: dict[str, Any]) -> Answer:
        if name in ("Finish", "Cancel"):
            task.state = {"Finish": "Finished", "Cancel": "Cancelled"}[name]
            return _json({"url": None})
        if name == "Upload":
            return self._upload_url(task, value)
        if task.state not in ("Finished", "Cancelled"):
            return _error(400, "Process request error: Task can not be marked as done")
        if name == "Submit":
            return self._submit(task, value)
        task.result = {"exit_status": value["exit_status"], "msg": value["msg"]}
        task.is_archived = True
        return _json({"url": None})

    def _upload_url(self, task: FakeTask, value: dict[str, Any]) -> Answer:
        if self.is_quota_used:
            return _error(403, "Resource quota exceeded")
        key = f"artifact/{task.uuid}/{value['content_type']}"
        self.artifact_sizes[key] = value["content_length"]
        return _json({"url": f"{self.http.url}/store/{key}?X-Amz-Signature=canary"})

    def _submit(self, task: FakeTask, value: dict[str, Any]) -> Answer:
        if "task_spec" not in value:
            return _error(400, "Process request error: no")
        follower = FakeTask(
            next(self._ids), value["task_spec"], upstream=task.uuid, state="Pending"
        )
        self.tasks.append(follower)
        task.downstream = follower.uuid
        return _json({"url": None})

    def _attachment(self, key: str) -> Answer:
        place = self.attachments.get(key)
        if place == "forbidden":
            return _error(403, "Authentication error: Permission denied")
        return self._locate(place or f"attachment/{key}")

    def _locate(self, place: str) -> Answer:
        if place not in self.store:
            return _error(404, "Attachment not found")
        return _json({"url": f"{self.http.url}/store/{place}", "size": len(self.store[place])})

    def _log(self, uuid: UUID, request: Request) -> Answer:
        stream, offset = request.query["stream"][0], int(request.query["offset"][0])
        kept = self.logs.setdefault((uuid, stream), bytearray())
        if offset > len(kept):
            self.violations.append(f"log chunk at {offset}, expected {len(kept)}")
        if len(request.body) > 64 * 1024:
            self.violations.append("log chunk beyond 64 KiB")
        # A chunk whose answer was lost comes again.
        kept[offset : offset + len(request.body)] = request.body
        return _json(None)

    def _unregister(self, worker: UUID) -> Answer:
        del self.workers[worker]
        self.unregistered.append(worker)
        for task in self.tasks:
            if task.assigned == worker and not task.is_archived:
                task.state, task.assigned = "Ready", None
        return _json(None)

    def _store(self, request: Request) -> Answer:
        place = request.path.removeprefix("/store/")
        if "authorization" in request.headers:
            self.violations.append("a token was sent to the store")
        if request.method == "GET":
            data = self.store.get(place)
            return Answer(404) if data is None else Answer(body=data)
        if len(request.body) != self.artifact_sizes.get(place, -1):
            self.violations.append(f"{place}: {len(request.body)} bytes, not the announced length")
            return Answer(403)
        self.store[place] = request.body
        return Answer()

    def _by_uuid(self, uuid: str) -> FakeTask | None:
        return next((task for task in self.tasks if str(task.uuid) == uuid), None)


def _json(value: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value).encode())


def _error(status: int, message: str) -> Answer:
    return _json({"msg": message}, status)
