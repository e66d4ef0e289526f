"""A real server process: what only shows outside Django's test client."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from django.db import connection

from accounts.models import User
from accounts.services.sessions import issue_user_token
from accounts.services.shutdown import shutdown_secret
from tests.integration.accounts.api_client import PASSWORD, digest

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def server(make_user: Callable[..., User]) -> Iterator["subprocess.Popen[bytes]"]:
    """uvicorn on the test database, with this run's keys."""
    make_user("root", admin=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    name = connection.settings_dict["NAME"]
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "mitosis_site.asgi:application", f"--port={port}"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database, "MITOSIS_PUBLIC_URL": url_of(port)},
    )
    process.port = port  # type: ignore[attr-defined]
    try:
        wait_until_up(url_of(port), process)
        yield process
    finally:
        process.kill()
        process.wait(timeout=10)


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def wait_until_up(url: str, process: "subprocess.Popen[bytes]", deadline_s: float = 30) -> None:
    ends_at = time.monotonic() + deadline_s
    while time.monotonic() < ends_at:
        assert process.poll() is None, "the server died"
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("the server never answered")


def test_shutdown_answers_first_and_then_stops_gracefully(
    server: "subprocess.Popen[bytes]",
) -> None:
    url = url_of(server.port)  # type: ignore[attr-defined]
    login = {"username": "root", "md5_password": digest(PASSWORD)}
    with httpx.Client(base_url=url) as client:
        token = client.post("/login", json=login).json()["token"]
        client.headers["Authorization"] = f"Bearer {token}"
        assert client.get("/auth").text == "root"
        refused = client.post("/admin/shutdown", json={"secret": "wrong"})
        assert refused.status_code == 403
        assert client.get("/auth").status_code == 200
        stopped = client.post("/admin/shutdown", json={"secret": shutdown_secret()})
        assert (stopped.status_code, stopped.content) == (200, b"")
    # uvicorn ends itself by the signal once everything is closed.
    assert server.wait(timeout=20) in (0, -signal.SIGTERM)


def test_tokens_are_the_same_in_every_process_of_an_installation(
    server: "subprocess.Popen[bytes]",
) -> None:
    token = issue_user_token(User.objects.get(username="root"))
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.get(f"{url_of(server.port)}/auth", headers=headers)  # type: ignore[attr-defined]
    assert (answer.status_code, answer.text) == (200, "root")
    assert answer.headers["Content-Type"].startswith("text/plain")
