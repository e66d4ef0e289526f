"""No tracked file remembers the machine it was written on.

Absolute home or checkout paths and the address of a private package index break a clone elsewhere
and tell strangers about our network.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A directory below somebody's home or a work volume; a bare `/home` in prose is allowed.
PERSONAL_PATH = re.compile(r"(?<![\w.}/-])/(?:home|Users|root|work|workspace)/[\w.-]+")
URL = re.compile(r"""https?://([^\s/:"'<>()\[\]]+)(?::\d+)?([^\s"'<>()\[\]]*)""")
INDEX_SETTING = re.compile(
    r"index[-_]?url|(index|registry)\s*=|find[-_]links|trusted[-_]host\b", re.IGNORECASE
)
INDEX_PATH = re.compile(r"/simple/?$|/pypi(/|$)|/artifactory/|/nexus/|/devpi", re.IGNORECASE)
PUBLIC_INDEXES = {"pypi.org", "files.pythonhosted.org", "registry.npmjs.org"}


def _tracked_text() -> Iterator[tuple[str, int, str]]:
    """File, line number and line of everything git tracks that is text."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing says which files are ours")
    # A checkout owned by another user (a container's mount) is fine for reading.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listing.stdout.split("\0")):
        path = ROOT / name
        data = path.read_bytes() if path.is_file() else b""
        if b"\0" in data:
            continue
        for number, line in enumerate(data.decode(errors="replace").splitlines(), start=1):
            yield name, number, line


def _private_indexes(line: str) -> list[str]:
    return [
        host + path
        for host, path in URL.findall(line)
        if (INDEX_SETTING.search(line) or INDEX_PATH.search(path)) and host not in PUBLIC_INDEXES
    ]


def test_no_tracked_file_names_a_personal_path() -> None:
    found = [
        f"{name}:{number}: {match}"
        for name, number, line in _tracked_text()
        for match in PERSONAL_PATH.findall(line)
    ]
    assert not found


def test_no_tracked_file_names_this_checkout() -> None:
    found = [f"{name}:{n}" for name, n, line in _tracked_text() if str(ROOT) in line]
    assert not found


def test_no_tracked_file_names_a_private_package_index() -> None:
    found = [
        f"{name}:{number}: {url}"
        for name, number, line in _tracked_text()
        for url in _private_indexes(line)
    ]
    assert not found


@pytest.mark.parametrize(
    "line",
    ["--index-url {}:3141/root/pypi", 'url = "{}/simple/"', "registry={}/npm", "[x]({}/pypi/x)"],
)
def test_a_private_index_is_recognised(line: str) -> None:
    assert _private_indexes(line.format("https:" + "//packages.invalid"))


@pytest.mark.parametrize("folder", ["home", "Users", "root", "work"])
def test_a_personal_path_is_recognised(folder: str) -> None:
    assert PERSONAL_PATH.search(f'path = "/{folder}/somebody/mitosis"')


def test_public_addresses_and_relative_paths_are_left_alone() -> None:
    assert not _private_indexes("--index-url https://pypi.org/simple")
    assert not _private_indexes("endpoint_url = http://127.0.0.1:8333")
    assert not PERSONAL_PATH.search("docs/work/plan.md and ./home/x and $HOME/work/y")
