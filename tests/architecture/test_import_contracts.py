"""The import contracts of pyproject.toml hold, and each of them bites.

A contract that never fails proves nothing: every one is broken on purpose in a copy of the tree,
and lint-imports must name it. Documented in docs/adr/0001-layout-and-import-order.md.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")
OPTIONS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]

# Contract name -> {file: the import that must not be there}; a missing file is made.
VIOLATIONS: Mapping[str, Mapping[str, str]] = {
    "Domain modules look down the package order": {
        "suites/planted.py": "import tasks.planted",
        "tasks/planted.py": "",
    },
    "Inside an app, calls go down": {
        "tasks/models.py": "import tasks.selectors",
        "tasks/selectors.py": "",
    },
    "Inside the console, calls go down": {
        "console/selectors/planted.py": "import console.panels.planted",
        "console/panels/planted.py": "",
    },
    "Only the composition root imports the console": {
        "websocket/planted.py": "import console.planted",
        "console/planted.py": "",
    },
    "Interface modules are called by the router only": {
        "accounts/planted.py": "import accounts.api",
        "accounts/api.py": "",
    },
    "Hot SQL is called by services and dispatchers only": {
        "workers/api.py": "import tasks.store",
        "tasks/store.py": "",
    },
    "Core knows no app": {"core/admin.py": "import accounts.planted", "accounts/planted.py": ""},
    "Nobody imports the composition root": {
        "workers/api.py": "import mitosis_site.planted",
        "mitosis_site/planted.py": "",
    },
    "Only the composition root imports the transport": {
        "suites/periodic.py": "import websocket.planted",
        "websocket/planted.py": "",
    },
    "The protocol is a leaf": {"mitosis_protocol/planted.py": "import django"},
    "Agent, client and stack are Django-free": {"nodeagent/worker/planted.py": "import channels"},
    "The coordinator never imports agent, client or stack": {
        "mitosis_site/planted.py": "import nodeagent.worker",
    },
    "Agent and client do not know each other": {
        "nodeagent/planted.py": "import mitosis_client.cli"
    },
    "Only the CLI starts the embedded stack": {"mitosis_client/planted.py": "import mitosis_stack"},
}


def _lint(tree: Path) -> tuple[int, set[str], str]:
    """Exit code, names of the broken contracts, and the whole output."""
    done = subprocess.run(
        [LINT_IMPORTS, "--no-cache"], cwd=tree, capture_output=True, text=True, check=False
    )
    output = done.stdout + done.stderr
    return done.returncode, set(re.findall(r"^(.+) BROKEN\b", output, re.MULTILINE)), output


def _append(file: Path, line: str) -> None:
    file.parent.mkdir(exist_ok=True)
    (file.parent / "__init__.py").touch()
    with file.open("a") as out:
        out.write(f"\n{line}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the packages and of the contracts, nothing else."""
    for package in OPTIONS["root_packages"]:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_tree_keeps_every_import_contract() -> None:
    code, broken, output = _lint(ROOT)
    assert (code, broken) == (0, set()), output


def test_every_contract_has_a_planted_violation() -> None:
    assert set(VIOLATIONS) == {contract["name"] for contract in OPTIONS["contracts"]}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_planted_violation_breaks_the_contract_named_for_it(tree: Path, name: str) -> None:
    for file, line in VIOLATIONS[name].items():
        _append(tree / file, line)

    code, broken, output = _lint(tree)

    assert code != 0, output
    assert name in broken, output


def test_an_interface_module_may_call_the_services_of_a_higher_app(tree: Path) -> None:
    _append(tree / "suites/api.py", "import tasks.services.planted")
    _append(tree / "tasks/services/planted.py", "")

    code, broken, output = _lint(tree)

    assert (code, broken) == (0, set()), output


def test_the_command_line_may_start_the_embedded_stack(tree: Path) -> None:
    _append(tree / "mitosis_client/cli/planted.py", "import mitosis_stack")

    code, broken, output = _lint(tree)

    assert (code, broken) == (0, set()), output
