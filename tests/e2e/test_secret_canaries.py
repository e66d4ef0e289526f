"""Secrets that may show nowhere: canaries go through the system, then everything is searched.

Passwords, tokens, signatures of presigned URLs and values of environments, through an independent
task and a suite on real processes; logs, answers, the audit log, Redis and command lines are read.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import httpx2
import psycopg
import pytest
import redis

from tests.e2e.agent_lab import BRISK, AgentLab
from tests.e2e.cluster import Cluster
from tests.e2e.page_crawler import log_in, pages
from tests.figures import Figure
from tests.harness import TestServices
from tests.integration.workers.live_user import LiveUser, eventually, own_worker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

PAGES = 80


class Canaries:
    """Values by where they went in; none of them may come out anywhere else."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def new(self, name: str) -> str:
        self.values[name] = f"canary{uuid4().hex}"
        return self.values[name]

    def add(self, name: str, value: str) -> None:
        assert len(value) >= 16, name
        self.values[name] = value

    def found_in(self, text: str) -> list[str]:
        return [name for name, value in self.values.items() if value in text]


def command_lines() -> Iterator[tuple[str, str]]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            yield process.name, (process / "cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue  # ended meanwhile


def hits_on_command_lines(canaries: Canaries) -> list[str]:
    return [
        f"{name} in the command line of {pid}"
        for pid, line in command_lines()
        for name in canaries.found_in(line)
    ]


def hits_in_files(canaries: Canaries, directory: Path) -> list[str]:
    return [
        f"{name} in {path.name}"
        for path in sorted(directory.rglob("*.log"))
        for name in canaries.found_in(path.read_text(errors="replace"))
    ]


def hits_in_stores(canaries: Canaries, cluster: Cluster) -> list[str]:
    with psycopg.connect(cluster.database_url) as database:
        rows = database.execute("SELECT a::text FROM audit_log a").fetchall()
        rows += database.execute("SELECT e::text FROM task_events e").fetchall()
        rows += database.execute("SELECT r::text FROM runners r").fetchall()
        rows += database.execute("SELECT u::text FROM users u").fetchall()
    kept = [f"{name} in a table" for (row,) in rows for name in canaries.found_in(row)]
    client = redis.Redis.from_url(cluster.environment["REDIS_URL"])
    for key in client.scan_iter():
        dumped = (client.dump(key) or b"").decode("latin-1")
        kept += [f"{name} in Redis under {key!r}" for name in canaries.found_in(dumped)]
    return kept


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    canaries = Canaries()
    secret = canaries.new("planted")
    (tmp_path / "x.log").write_text(f'{{"event": "oops", "token": "{secret}"}}')
    assert hits_in_files(canaries, tmp_path) == ["planted in x.log"]
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", secret]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        # The kernel shows the arguments a moment after the program was replaced.
        found = eventually(lambda: hits_on_command_lines(canaries))
        assert found == [f"planted in the command line of {child.pid}"]
        assert child.stdin is not None
        child.stdin.close()


@pytest.fixture(scope="module")
def cluster(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("canaries"), environment=BRISK) as running:
        yield running


def token_of(user: LiveUser) -> str:
    return str(user.http.headers["Authorization"]).split(" ")[1]


def misuse(cluster: Cluster, user: LiveUser, canaries: Canaries) -> None:
    """What people do wrong: passwords that do not match, tokens in addresses, broken bodies."""
    guess = canaries.new("a guessed password")
    with httpx2.Client(base_url=cluster.url, timeout=30) as http:
        body = {"username": "nobody", "md5_password": list(hashlib.md5(guess.encode()).digest())}
        assert http.post("/login", json=body).status_code == 401
        assert http.post("/login", json={**body, "md5_password": guess}).status_code == 422
        stray = canaries.new("a token in the address")
        assert http.get(f"/auth?token={stray}").status_code == 400
        bad = canaries.new("a bad token")
        assert http.get("/auth", headers={"Authorization": f"Bearer {bad}"}).status_code == 401
        odd = canaries.new("an odd header")
        assert http.get("/auth", headers={"Authorization": odd}).status_code == 400
    broken = '{"task_spec": {"envs": {"KEY": "' + canaries.new("a broken body") + '"'
    headers = {"Content-Type": "application/json"}
    assert user.http.post("/tasks", content=broken, headers=headers).status_code == 400


def answers_about(user: LiveUser, suite: str, tasks: list[str]) -> Iterator[tuple[str, str]]:
    """What people look at. A task's own specification shows its environment, to its group only."""
    paths = [f"/suites/{suite}/explain", "/suites", "/managers", "/events", "/users/groups"]
    paths += [f"/tasks/{task}/explain" for task in tasks]
    paths += [f"/workers/{worker['worker_id']}" for worker in user.workers()]
    for path in paths:
        yield path, user.http.get(path).text
    yield "/workers/query", json.dumps(user.workers())


def hits_on_pages(canaries: Canaries, cluster: Cluster, suite: str, tasks: list[str]) -> list[str]:
    """As an operator walks through them, the ones about our suite and tasks first."""
    starts = [f"/console/suites/{suite}", *(f"/console/tasks/{task}" for task in tasks)]
    with closing(log_in(cluster)) as http:
        walked = dict(pages(http, *starts, "/console/", "/admin/", most=PAGES))
    assert len(walked) > 30, list(walked)
    return [
        f"{name} on {address}"
        for address, text in walked.items()
        for name in canaries.found_in(text)
    ]


def collect(cluster: Cluster, user: LiveUser, canaries: Canaries) -> None:
    """The secrets the system itself is made of."""
    canaries.add("the admin's password", user.password)
    canaries.add("the user's token", token_of(user))
    parts = urlsplit(cluster.database_url)
    if parts.password:
        canaries.add("the database's password", parts.password)
    canaries.add("the S3 secret", cluster.environment["S3_SECRET_ACCESS_KEY"])
    canaries.add("a worker's token", user.register()["token"])
    registered = user.http.post("/managers", json={"groups": [user.name]}).json()
    canaries.add("a manager's token", registered["token"])
    canaries.add("a manager's refresh token", registered["refresh_token"])


def test_no_secret_shows_anywhere(cluster: Cluster, open_dir: Path, figure: Figure) -> None:
    canaries = Canaries()
    user = LiveUser(cluster)
    collect(cluster, user, canaries)
    lab = AgentLab(cluster)
    misuse(cluster, user, canaries)
    gate = open_dir / "gate"
    wait = f'test -n "$API_KEY" && while ! test -e {gate}; do sleep 0.1; done; echo fine'
    with own_worker(user, "alone", "--tags", "alone"), lab.agent("host"):
        lab.wait_for_managers(1)
        envs = {"API_KEY": canaries.new("a task's environment")}
        single = user.submit("sh", "-c", wait, tags=("alone",), envs=envs, terminal_output=True)
        hook = {
            "args": ["sh", "-c", "true"],
            "envs": {"HOOK_KEY": canaries.new("a hook's environment")},
            "timeout": "30s",
        }
        suite = lab.suite(env_preparation=hook)
        envs = {"API_KEY": canaries.new("a suite task's environment")}
        managed = lab.sh(suite, wait, envs=envs, terminal_output=True)
        for task in (single, managed):
            eventually(lambda task=task: user.task(task)["state"] == "Running", within_s=60)
        assert hits_on_command_lines(canaries) == []
        gate.touch()
        for task in (single, managed):
            assert user.ended(task, within_s=60)["outcome"] == "succeeded"
        lab.wait_complete(suite)
        for task in (single, managed):
            found = user.call("GET", f"/tasks/{task}/download/artifacts/std-log")
            [signature] = parse_qs(urlsplit(found["url"]).query)["X-Amz-Signature"]
            canaries.add(f"the signature for {task}", signature)
            assert httpx2.get(found["url"]).status_code == 200
        shown = [
            f"{name} in the answer of {path}"
            for path, text in answers_about(user, suite, [single, managed])
            for name in canaries.found_in(text)
        ]
    assert len(canaries.values) >= 16
    shown += hits_in_files(canaries, cluster.root)
    shown += hits_in_stores(canaries, cluster)
    shown += hits_on_command_lines(canaries)
    shown += hits_on_pages(canaries, cluster, suite, [single, managed])
    assert shown == []
    figure("secret canaries: hits", len(shown), "places", at_most=0)
    lab.close()
    user.close()
