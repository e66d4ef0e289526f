"""A direct worker's output in `curl -N` and in a browser while it runs, and after its host died."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.e2e.cluster import Cluster
from tests.e2e.console_lab import launch, log_in, note_problems
from tests.harness import TestServices
from tests.integration.workers.live_user import SHORT_LEASE, LiveUser, eventually, worker_program

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SOON_MS = 40_000
LINES = 400
# More than one piece of output, line by line, and then silence until somebody ends it.
SCRIPT = (
    f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i; "
    "test $((i % 100)) = 0 && sleep 0.5; done; sleep 600"
)


@pytest.fixture(scope="module")
def cluster(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("watched"), environment=SHORT_LEASE) as running:
        yield running


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(cluster)
    yield found
    found.close()


def log_of(user: LiveUser, uuid: str) -> str:
    query = {"stream": "stdout", "attempt": "1", "offset": "0"}
    return user.http.get(f"/tasks/{uuid}/logs", params=query).text


WHOLE = "".join(f"line {number}\n" for number in range(1, LINES + 1))


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_curl_sees_the_output_come_and_all_of_it_is_there_when_the_host_is_gone(
    user: LiveUser, tmp_path: Path
):
    uuid = user.submit("sh", "-c", SCRIPT, tags=("curl",), terminal_output=True, timeout="10m")
    seen = tmp_path / "events"
    token = str(user.http.headers["Authorization"])
    with seen.open("wb") as out:
        curl = subprocess.Popen(
            ["curl", "-sN", "-H", f"Authorization: {token}",
             f"{user.cluster.url}/tasks/{uuid}/events"],
            stdout=out,
        )  # fmt: skip
    try:
        with worker_program(user, "curl", "--direct", "--tags", "curl") as worker:
            eventually(lambda: _available(seen) == len(WHOLE), within_s=90)
            assert user.task(uuid)["state"] == "Running"
            user.cluster.expect_exit("curl")
            worker.kill()
        # Its lease ends, the task waits for another host; nobody is left who wrote the output.
        eventually(lambda: user.task(uuid)["state"] == "Ready", within_s=60)
        assert log_of(user, uuid) == WHOLE
        user.call("DELETE", f"/tasks/{uuid}")
        # The stream ends with the task.
        assert curl.wait(30) == 0
        assert "ended" in seen.read_text()
    finally:
        curl.kill()
        curl.wait()


def _available(seen: Path) -> int:
    """How many bytes of output the stream has announced so far."""
    lines = [line.removeprefix("data:") for line in seen.read_text().splitlines()]
    found = [json.loads(line) for line in lines if line.strip().startswith("{")]
    return max((event.get("available", 0) for event in found), default=0)


@pytest.fixture
def page(user: LiveUser) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser: Browser | None = launch(playwright)
        if browser is None:
            pytest.skip("no Chromium on this machine (make test installs it when run as root)")
        context = browser.new_context(base_url=user.cluster.url)
        page = context.new_page()
        problems = note_problems(page, user.cluster.url)
        log_in(page, *user.cluster.admin)
        yield page
        context.close()
        browser.close()
        assert problems == []


@pytest.mark.browser
def test_a_browser_sees_the_output_come_and_all_of_it_is_there_when_the_host_is_gone(
    user: LiveUser, page: Page
):
    uuid = user.submit("sh", "-c", SCRIPT, tags=("seen",), terminal_output=True, timeout="10m")
    page.goto(f"/console/tasks/{uuid}")
    lines = page.locator("[data-lines] div")
    with worker_program(user, "seen", "--direct", "--tags", "seen") as worker:
        expect(lines.first).to_have_text("line 1", timeout=SOON_MS)
        page.wait_for_function(
            "count => document.querySelectorAll('[data-lines] div').length >= count",
            arg=LINES,
            timeout=SOON_MS,
        )
        assert user.task(uuid)["state"] == "Running"
        user.cluster.expect_exit("seen")
        worker.kill()
    eventually(lambda: user.task(uuid)["state"] == "Ready", within_s=60)
    # A fresh page has nothing but what was kept.
    page.goto("about:blank")
    page.goto(f"/console/tasks/{uuid}")
    expect(page.locator("[data-lines] div").first).to_have_text("line 1", timeout=SOON_MS)
    expect(page.locator("[data-lines]")).to_contain_text(f"line {LINES}", timeout=SOON_MS)
    user.call("DELETE", f"/tasks/{uuid}")
