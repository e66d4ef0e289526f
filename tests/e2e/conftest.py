"""Fixtures for tests that start real processes."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.browser_setup import find_chromium
from tests.e2e.cluster import Cluster
from tests.e2e.stack_client import Stack
from tests.harness import TestServices


@pytest.fixture(scope="module")
def cluster(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One coordinator with Celery, shared by the tests of a module."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that commands in a sandbox can reach and write; pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="mitosis-open-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture
def stack(data_dir: Path) -> Iterator[Stack]:
    """An embedded stack on a directory of its own, not yet started."""
    running = Stack(data_dir)
    yield running
    running.run("down")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Headless Chromium; `make test` installs it where it may.

    Not longer than a module: while it is open, Playwright's event loop stands in the way of
    asynchronous tests.
    """
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on this machine (make test installs it when run as root)")
    arguments = [
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser, cluster: Cluster) -> Iterator[Page]:
    """A fresh browser page; fails the test for script errors, CSP reports and foreign requests."""
    context = chromium.new_context(base_url=cluster.url)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    page.on("console", lambda message: _note_problem(message, problems))
    page.on("request", lambda request: _note_foreign(request.url, cluster.url, problems))
    yield page
    context.close()
    assert not problems, problems


def _note_problem(message: ConsoleMessage, problems: list[str]) -> None:
    if message.type == "error":
        problems.append(f"console: {message.text}")


def _note_foreign(url: str, own: str, problems: list[str]) -> None:
    if not url.startswith((own, "data:", "blob:")):
        problems.append(f"request to {url}")
