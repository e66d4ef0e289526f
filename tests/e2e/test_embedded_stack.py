"""`mitosis up`, `down` and `status` as an operator meets them."""

import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.e2e.stack_client import Stack, eventually
from tests.figures import Figure

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

PARTS = ("postgres", "valkey", "s3", "web", "celery-worker", "celery-beat")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack for tests that leave it running and healthy."""
    running = Stack(tmp_path_factory.mktemp("shared") / "data")
    running.up()
    yield running
    running.down()


def test_up_makes_private_credentials_and_all_parts_answer(shared: Stack):
    assert stat.S_IMODE((shared.data_dir / "admin.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((shared.data_dir / "secrets.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((shared.data_dir / "keys" / "private.pem").stat().st_mode) == 0o600
    assert set(shared.admin) == {"url", "username", "password"}
    assert httpx2.get(f"{shared.url}/healthz").status_code == 200
    checks = httpx2.get(f"{shared.url}/readyz").json()["checks"]
    assert all(check["ok"] for check in checks.values()), checks
    assert shared.has_group(shared.admin["username"])
    for part in PARTS:
        assert (shared.data_dir / "logs" / f"{part}.log").exists()


def test_status_tells_every_part_and_its_exit_status_is_zero(shared: Stack):
    done = shared.run("status")
    assert done.returncode == 0
    for part in PARTS:
        assert part in done.stdout


def test_everything_listens_on_loopback_or_unix_sockets_only(shared: Stack):
    for process in shared.processes():
        for connection in process.net_connections(kind="inet"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip in {"127.0.0.1", "::1"}, (process.name(), connection)


def test_no_secret_stands_in_a_command_line(shared: Stack):
    secrets = [shared.admin["password"], *_secret_values(shared)]
    for process in shared.processes():
        line = " ".join(process.cmdline())
        assert not any(secret in line for secret in secrets)


def test_a_second_start_on_the_same_data_dir_is_refused(shared: Stack):
    done = shared.run("up", "--detach")
    assert done.returncode == 1
    assert "already runs" in done.stderr
    assert f"mitosis down --data-dir {shared.data_dir}" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert shared.is_ready()


def test_a_second_stack_beside_it_picks_its_own_ports_and_leaves_no_socket_behind(
    shared: Stack, stack: Stack
):
    stack.up()
    assert stack.url != shared.url
    assert stack.is_ready()
    assert shared.is_ready()
    places = _places_of_sockets(stack)
    assert places
    stack.down()
    assert shared.is_ready()
    assert [place for place in places if place.exists()] == []


def _places_of_sockets(stack: Stack) -> set[Path]:
    return {
        Path(connection.laddr).parent
        for process in stack.processes()
        for connection in process.net_connections(kind="unix")
        if "/mitosis-" in connection.laddr
    }


@pytest.mark.parametrize("part", PARTS)
def test_kill_9_of_a_part_is_healed_without_loss(shared: Stack, part: str):
    shared.create_group(f"before-{part}")
    old = shared.child_pid(part)
    os.kill(old, signal.SIGKILL)
    eventually(lambda: shared.child_pid(part) != old, within_s=20, what=f"{part} started again")
    eventually(shared.is_ready, within_s=20, what="ready again")
    eventually(
        lambda: shared.state["children"][part]["state"] == "running", within_s=20, what="running"
    )
    assert shared.has_group(f"before-{part}")


def _secret_values(stack: Stack) -> list[str]:
    text = (stack.data_dir / "secrets.json").read_text()
    return [word for word in text.split('"') if len(word) > 16 and "_" not in word]


def test_after_the_death_of_postgres_requests_are_served_again_at_once(
    shared: Stack, figure: Figure
):
    log = shared.data_dir / "logs" / "postgres.log"
    ready = "ready to accept connections"
    before = log.read_text().count(ready)
    os.kill(shared.child_pid("postgres"), signal.SIGKILL)
    eventually(lambda: log.read_text().count(ready) > before, within_s=60, what="a new PostgreSQL")
    ready_at = time.monotonic()
    eventually(shared.is_ready, within_s=30, what="ready again")
    figure("killed PostgreSQL: served again", time.monotonic() - ready_at, "s", at_most=5)
    assert shared.has_group(shared.admin["username"])
