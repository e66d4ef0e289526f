"""Agent, client, stack and protocol run on a host that has no Django.

The contract in pyproject.toml reads import statements; this test imports every module in a fresh
interpreter in which the coordinator's libraries and packages cannot be found at all.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Runs in its own interpreter: argv[1] is the package, the rest are the names that must not load.
PROBE = """
import importlib, importlib.abc, pkgutil, sys

package, blocked = sys.argv[1], frozenset(sys.argv[2:])

class Wall(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ImportError(f"{name} is not for {package}")
        return None

sys.meta_path.insert(0, Wall())

def fail(name):
    raise

root = importlib.import_module(package)
for found in pkgutil.walk_packages(root.__path__, package + ".", onerror=fail):
    # Importing a __main__ would run the program; its imports are read by lint-imports.
    if not found.name.endswith(".__main__"):
        importlib.import_module(found.name)
print(*sorted(name for name in sys.modules if name.partition(".")[0] == package))
"""

COORDINATOR = (
    *("django", "rest_framework", "channels", "channels_redis", "celery", "daphne"),
    *("mitosis_site", "websocket", "tasks", "workers", "managers", "suites", "runners"),
    *("accounts", "core", "notifications"),
)


def _import_all(package: str, *blocked: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROBE, package, *blocked],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "package", ["nodeagent", "mitosis_client", "mitosis_stack", "mitosis_protocol"]
)
def test_every_module_imports_where_the_coordinator_is_not_installed(package: str) -> None:
    done = _import_all(package, *COORDINATOR)
    assert done.returncode == 0, done.stderr
    assert package in done.stdout.split()


def test_the_protocol_needs_nothing_but_msgspec() -> None:
    others = ("httpx2", "iceoryx2", "psutil", "rich", "structlog", "typer", "websockets")
    done = _import_all("mitosis_protocol", *COORDINATOR, *others)
    assert done.returncode == 0, done.stderr


def test_the_wall_stops_a_package_that_needs_django() -> None:
    done = _import_all("accounts", "django")
    assert done.returncode != 0
    assert "django is not for accounts" in done.stderr
