"""The wheel has what the code opens at run time, and nothing that is not for users."""

import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.release.check_wheel import ROOT, build

PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
NOT_SHIPPED = {"tests", "benchmarks"}
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    with zipfile.ZipFile(build(tmp_path_factory.mktemp("dist"))) as wheel:
        return set(wheel.namelist())


def _sources(pattern: str) -> set[str]:
    """What git has, so that rubbish of a developer is neither asked for nor allowed."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", pattern]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout: nothing says which files are ours")
    return {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}


@pytest.mark.parametrize("folder", ["templates", "static"])
def test_the_pages_of_the_console_are_in_their_package(names: set[str], folder: str) -> None:
    wanted = {f"mitosis_site/{name}" for name in _sources(f"{folder}/**")}
    assert wanted
    assert wanted == {name for name in names if name.startswith(f"mitosis_site/{folder}/")}


@pytest.mark.parametrize("pattern", ["*.sql", "*/migrations/*.py", "*.py"])
def test_every_file_of_the_packages_is_there(names: set[str], pattern: str) -> None:
    shipped = set(PACKAGES) - NOT_SHIPPED
    wanted = {name for name in _sources(pattern) if name.split("/")[0] in shipped and "/" in name}
    assert wanted
    assert not wanted - names


def test_nothing_else_is_there(names: set[str]) -> None:
    folders = {name.split("/")[0] for name in names}
    assert {name for name in folders if not name.endswith(".dist-info")} == set(
        PACKAGES
    ) - NOT_SHIPPED


def test_the_version_is_said_once() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    found = re.search(r'^version = "([^"]+)"$', pyproject, re.MULTILINE)
    assert found is not None
    version = found[1]
    for path in [*(ROOT / "docker").rglob("*.yaml"), ROOT / "docker" / "compose.yml"]:
        for tag in re.findall(r"mitosis-\w+:(\S+)", Path(path).read_text()):
            assert tag == version, path.name
