"""The documentation builds offline, warnings are errors, and the pages are complete."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.command_blocks import ROOT

# Twenty seconds of a quiet machine; tests beside it make it longer.
pytestmark = pytest.mark.timeout(300)
BUILD_TIMEOUT_S = 280


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    # No way out: whatever asked the network would fail. OpenAPI needs neither store nor network.
    nowhere = "http://127.0.0.1:9"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(directory)],
        cwd=ROOT,
        env={
            "NO_MKDOCS_2_WARNING": "1",
            "PATH": "/usr/bin:/bin",
            "HTTP_PROXY": nowhere,
            "HTTPS_PROXY": nowhere,
        },
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    wanted = {
        path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")
    }
    built = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert {one for one in wanted if one.name != "README"} <= built
    loads = re.compile(r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(https?:[^"]+)"')
    for page in site.rglob("*.html"):
        assert not loads.findall(page.read_text()), page


def test_references_are_written_from_the_code(site: Path) -> None:
    api = (site / "reference" / "http-api.html").read_text()
    assert "POST /tasks/array" in api
    assert "GET /suites/{suite_uuid}/explain" in api
    assert "fetch_tasks" in (site / "reference" / "protocol.html").read_text()


def test_state_diagrams_are_drawn(site: Path) -> None:
    page = (site / "concepts.html").read_text()
    assert page.count('<svg class="states"') == 3
    assert "stateDiagram" not in page
