"""A worker as the existing binary behaves, strictness included: run it as a program.

It knows nothing that the existing API does not have. Any status but 2xx and 401 on fetch or
heartbeat ends it with status 70, a report answered with anything but 2xx, 401 or 404 with 71, an
unreadable body with 72; 401 is a clean end. Only refused connections are tried again.
"""

import argparse
import gzip
import http.client
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any, NoReturn

EXIT_ON_POLL, EXIT_ON_REPORT, EXIT_ON_BODY, EXIT_ON_PUT = 70, 71, 72, 73


class Coordinator:
    """Requests with the worker's token; no body and no content type unless there is one."""

    def __init__(self, url: str, token: str, retry_s: float) -> None:
        self._host = urllib.parse.urlsplit(url).netloc
        self._token = token
        self._retry_s = retry_s

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._token}"}
        data = None
        if body is not None:
            data = json.dumps(body)
            headers["Content-Type"] = "application/json"
        while True:
            connection = http.client.HTTPConnection(self._host)
            try:
                connection.connect()
            except OSError:
                time.sleep(self._retry_s)
                continue
            try:
                connection.request(method, path, data, headers)
                response = connection.getresponse()
                return response.status, response.read()
            finally:
                connection.close()

    def poll(self, method: str, path: str) -> Any:
        status, body = self.call(method, path)
        if status == 401:
            leave("removed", 0)
        if not 200 <= status < 300:
            leave(f"{method} {path} answered {status}", EXIT_ON_POLL)
        return parsed(body)

    def report(self, attempt_id: int, op: Any) -> Any:
        """The answer, or None where the task is no longer ours."""
        status, body = self.call("POST", "/workers/tasks", {"id": attempt_id, "op": op})
        if status == 401:
            leave("removed", 0)
        if status in (403, 404):
            say(f"report {op} answered {status}")
            return None
        if not 200 <= status < 300:
            leave(f"report {op} answered {status} {body!r}", EXIT_ON_REPORT)
        return parsed(body)


def main() -> None:
    options = read_options()
    coordinator = Coordinator(options.url, options.token_file.read_text(), options.polling_s)
    threading.Thread(target=beat, args=(coordinator, options.heartbeat_s), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: unregister(coordinator))
    while True:
        task = coordinator.poll("GET", "/workers/tasks")
        if task is None:
            time.sleep(options.polling_s)
        else:
            run(coordinator, task)


def beat(coordinator: Coordinator, interval_s: float) -> None:
    while True:
        time.sleep(interval_s)
        if coordinator.poll("POST", "/workers/heartbeat") is not None:
            leave("a heartbeat was answered with more than null", EXIT_ON_BODY)


def run(coordinator: Coordinator, task: dict[str, Any]) -> None:
    say(f"task {task['uuid']} attempt {task['id']}")
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        for name in ("result", "exec-log", "std-log", "resource"):
            (folder / name).mkdir()
        if not fetch_resources(coordinator, task, folder / "resource"):
            coordinator.report(task["id"], "Cancel")
            commit = {"exit_status": 0, "msg": "ResourceNotFound"}
            coordinator.report(task["id"], {"Commit": commit})
            return
        status, timed_out = execute(task, folder)
        coordinator.report(task["id"], "Cancel" if timed_out else "Finish")
        for kind in ("result", "exec-log", "std-log"):
            if any((folder / kind).iterdir()) and not upload(coordinator, task["id"], folder, kind):
                break
        msg = "ExecTimeout" if timed_out else submit(coordinator, task["id"], folder / "new-task")
        coordinator.report(task["id"], {"Commit": {"exit_status": status, "msg": msg}})


def fetch_resources(coordinator: Coordinator, task: dict[str, Any], folder: Path) -> bool:
    for resource in task["spec"]["resources"]:
        [(kind, place)] = resource["remote_file"].items()
        if kind == "Artifact":
            path = f"/workers/tasks/{place['uuid']}/artifacts/{place['content_type']}"
        else:
            key = urllib.parse.quote(place["key"])
            path = f"/workers/tasks/{task['uuid']}/attachments/{key}"
        status, body = coordinator.call("GET", path)
        if status == 404:
            return False
        found = parsed(body)
        target = folder / resource["local_path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        data = transfer("GET", found["url"], None)
        assert len(data) == found["size"], (len(data), found)
        target.write_bytes(data)
    return True


def execute(task: dict[str, Any], folder: Path) -> tuple[int, bool]:
    spec = task["spec"]
    environment = {
        **os.environ,
        **spec["envs"],
        "MITO_RESULT_DIR": str(folder / "result"),
        "MITO_EXEC_DIR": str(folder / "exec-log"),
        "MITO_RESOURCE_DIR": str(folder / "resource"),
        "MITO_TASK_UUID": task["uuid"],
        "MITO_NEW_TASK": str(folder / "new-task"),
    }
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if spec["terminal_output"]:
        streams = {
            name: (folder / "std-log" / f"{name}.log").open("wb") for name in ("stdout", "stderr")
        }
    child = subprocess.Popen(
        ["/usr/bin/env", *spec["args"]], stdin=subprocess.DEVNULL, env=environment, **streams
    )
    try:
        code = child.wait(seconds_of(task["timeout"]))
    except subprocess.TimeoutExpired:
        child.terminate()
        code = child.wait()
        return -code, True
    # A raw wait status, as the binary sends it.
    return (code << 8 if code >= 0 else -code), False


def upload(coordinator: Coordinator, attempt_id: int, folder: Path, kind: str) -> bool:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb") as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        archive.add(folder / kind, arcname=kind)
    data = packed.getvalue()
    op = {"Upload": {"content_type": kind, "content_length": len(data)}}
    answer = coordinator.report(attempt_id, op)
    if answer is None:
        return False
    transfer("PUT", answer["url"], data)
    return True


def submit(coordinator: Coordinator, attempt_id: int, file: Path) -> str | None:
    if not file.exists():
        return None
    answer = coordinator.report(attempt_id, {"Submit": json.loads(file.read_text())})
    return None if answer is not None else "SubmitNewTaskFailed"


def transfer(method: str, url: str, data: bytes | None) -> bytes:
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc)
    # Content-Length comes from the body; no Content-Type, no Authorization.
    connection.request(method, f"{parts.path}?{parts.query}", data)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if not 200 <= response.status < 300:
        leave(f"{method} of an archive answered {response.status} {body!r}", EXIT_ON_PUT)
    return body


def seconds_of(text: str) -> float:
    """Enough of humantime for what tests ask for."""
    units = {"s": 1, "m": 60, "h": 3600, "day": 86400, "days": 86400}
    total = 0.0
    for part in text.split():
        digits = part.rstrip("abcdefghijklmnopqrstuvwxyz")
        total += float(digits) * units[part[len(digits) :]]
    return total


def parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        leave(f"unreadable body {body!r}", EXIT_ON_BODY)


def unregister(coordinator: Coordinator) -> NoReturn:
    coordinator.call("DELETE", "/workers")
    leave("stopped", 0)


def say(text: str) -> None:
    print(text, flush=True)


def leave(reason: str, status: int) -> NoReturn:
    say(f"leaving: {reason}")
    os._exit(status)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--polling-s", type=float, default=0.1)
    parser.add_argument("--heartbeat-s", type=float, default=0.2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
