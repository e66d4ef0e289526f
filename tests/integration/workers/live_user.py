"""A user of a running coordinator, and the worker programs that run its tasks."""

import gzip
import hashlib
import io
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from mitosis_stack.process import Child
from tests.e2e.cluster import Cluster

T = TypeVar("T")

EXISTING_WORKER = Path(__file__).with_name("existing_worker.py")
# Leases of seconds; beats of our worker are set by its own flag below.
SHORT_LEASE = {
    "MITOSIS_POLICY": "heartbeat_s=0.75,lease_ttl_s=3,reaper_grace_s=0.5,sweep_s=1,pool_wait_s=1"
}


def eventually(check: Callable[[], T], *, within_s: float = 30, what: str = "") -> T:
    """The first true answer of `check`; fails at the deadline with the last one."""
    deadline = time.monotonic() + within_s
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {within_s} s: {what} {found!r}"
        time.sleep(0.05)


class LiveUser:
    """The bootstrap admin, as an ordinary user with a group of its own."""

    def __init__(self, cluster: Cluster, url: str | None = None) -> None:
        self.cluster = cluster
        self.name, self.password = cluster.admin
        self.http = httpx2.Client(base_url=url or cluster.url, timeout=30)
        digest = list(hashlib.md5(self.password.encode()).digest())
        body = {"username": self.name, "md5_password": digest, "retain": True}
        answer = self.http.post("/login", json=body)
        assert answer.status_code == 200, answer.text
        self.http.headers["Authorization"] = f"Bearer {answer.json()['token']}"

    def close(self) -> None:
        self.http.close()

    def call(self, method: str, path: str, **options: Any) -> Any:
        """Repeats while the coordinator is away, as a user would; the JSON of the answer."""

        def answered() -> httpx2.Response | None:
            try:
                response = self.http.request(method, path, **options)
            except httpx2.TransportError:
                return None
            return response if response.status_code < 500 else None

        response = eventually(answered, what=f"{method} {path}")
        assert response.status_code == 200, (response.status_code, response.text)
        return response.json() if response.content else None

    def submit(
        self, *args: str, timeout: str = "1m", tags: tuple[str, ...] = (), **spec: Any
    ) -> str:
        body = {
            "group_name": self.name,
            "tags": list(tags),
            "labels": [],
            "timeout": timeout,
            "priority": 0,
            "task_spec": {"args": list(args), **spec},
        }
        return str(self.call("POST", "/tasks", json=body)["uuid"])

    def task(self, uuid: str) -> dict[str, Any]:
        info: dict[str, Any] = self.call("GET", f"/tasks/{uuid}")["info"]
        return info

    def ended(self, uuid: str, *, within_s: float = 30) -> dict[str, Any]:
        """The task once it has an outcome."""
        return eventually(
            lambda: (info := self.task(uuid))["outcome"] and info,
            within_s=within_s,
            what=f"end of {uuid}, {self.task(uuid)}",
        )

    def running(self, uuid: str, *, within_s: float = 30) -> dict[str, Any]:
        return eventually(
            lambda: (info := self.task(uuid))["state"] == "Running" and info, within_s=within_s
        )

    def archive(self, uuid: str, kind: str) -> dict[str, bytes]:
        """The files of an archive by name."""
        found = self.call("GET", f"/tasks/{uuid}/download/artifacts/{kind}")
        data = httpx2.get(found["url"]).content
        assert len(data) == found["size"]
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as archive:
            return {
                member.name: file.read()
                for member in archive.getmembers()
                if (file := archive.extractfile(member)) is not None
            }

    def register(self, **body: Any) -> dict[str, Any]:
        given = {"tags": [], "labels": [], "groups": [], **body}
        answer: dict[str, Any] = self.call("POST", "/workers", json=given)
        return answer

    def workers(self) -> list[dict[str, Any]]:
        answer = self.call("POST", "/workers/query", json={"count": False})
        found: list[dict[str, Any]] = answer["workers"]
        return found


@contextmanager
def existing_worker(
    user: LiveUser, name: str, *, url: str | None = None, tags: tuple[str, ...] = ()
) -> Iterator[Child]:
    """The strict worker of the existing API, ended with the block."""
    token_file = user.cluster.root / f"{name}.token"
    token_file.write_text(user.register(tags=tags)["token"])
    argv = ("--url", url or user.cluster.url, "--token-file", str(token_file))
    child = user.cluster.start_program(name, sys.executable, str(EXISTING_WORKER), *argv)
    try:
        yield child
    finally:
        assert child.poll() in (None, 0), user.cluster.log(name)[-3000:]
        user.cluster.expect_exit(name)
        child.stop()


@contextmanager
def own_worker(user: LiveUser, name: str, *flags: str, url: str | None = None) -> Iterator[Child]:
    """`nodeagent worker --independent`, ended with the block."""
    with worker_program(
        user, name, "--independent", "--polling-interval", "100ms", *flags, url=url
    ) as child:
        yield child


@contextmanager
def worker_program(
    user: LiveUser, name: str, *flags: str, url: str | None = None, **environment: str
) -> Iterator[Child]:
    """`nodeagent worker` of the given kind, ended with the block."""
    home = user.cluster.root / name
    home.mkdir()
    env = {
        **{key: user.cluster.environment[key] for key in ("PATH", "PYTHONUNBUFFERED")},
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "MITO_PASSWORD": user.password,
        "PYTHONPATH": str(Path.cwd()),
        **environment,
    }
    child = user.cluster.start_program(
        name,
        *(sys.executable, "-m", "nodeagent", "worker", "--retain"),
        *("--coordinator", url or user.cluster.url, "--user", user.name),
        *("--heartbeat-interval", "500ms"),
        *("--log-format", "json", *flags),
        env=env,
    )
    try:
        yield child
    finally:
        user.cluster.expect_exit(name)
        child.stop()
        print(user.cluster.log(name)[-6000:])
