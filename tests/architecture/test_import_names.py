"""Top-level names of this tree do not collide with libraries of the same name.

`websocket` shadows websocket-client and `docker` would shadow the docker SDK as soon as it became a
package; Celery's default `<app>/tasks.py` and Django's `managers.py` would give our nouns a second
meaning. See docs/adr/0001-layout-and-import-order.md.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APPS = ("accounts", "managers", "notifications", "runners", "suites", "tasks", "workers")
VAGUE = {"utils", "helpers", "misc", "common"}


@pytest.mark.parametrize("lock", ["server.txt", "embedded.txt", "agent.txt"])
def test_websocket_client_is_not_installed_beside_our_websocket(lock: str) -> None:
    pinned = (ROOT / "requirements" / lock).read_text().splitlines()
    assert not [line for line in pinned if line.startswith("websocket-client==")]


def test_docker_stays_a_folder_without_python() -> None:
    assert not list((ROOT / "docker").rglob("*.py"))


@pytest.mark.parametrize("app", APPS)
def test_an_app_has_no_module_that_gives_our_nouns_a_second_meaning(app: str) -> None:
    assert not (ROOT / app / "tasks.py").exists(), "periodic jobs live in periodic.py"
    assert not (ROOT / app / "managers.py").exists(), "Django managers live in querysets.py"
    assert not (ROOT / app / "signals.py").exists(), "no model signals"


def test_no_module_hides_behind_a_vague_name() -> None:
    found = {path for app in APPS for path in (ROOT / app).rglob("*.py") if path.stem in VAGUE}
    assert not found
