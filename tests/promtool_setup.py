"""Fetches promtool for the tests of the alert rules when it is absent and this machine allows it.

Run by `make test` before pytest. The program is taken out of Debian's package `prometheus` into
`.venv/bin`: installing the package would also start a server. Without it those tests are skipped,
and this says so in one line.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OURS = Path(sys.prefix) / "bin" / "promtool"


def find_promtool() -> str | None:
    """The path of promtool."""
    return shutil.which("promtool") or (str(OURS) if OURS.is_file() else None)


def main() -> int:
    if find_promtool():
        return 0
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        print("Tests of the alert rules will be skipped: no promtool, and this is no Debian.")
        return 0
    print("Fetching promtool for the tests of the alert rules", flush=True)
    with tempfile.TemporaryDirectory() as text:
        problem = _download(Path(text))
        if problem and os.geteuid() == 0:
            _run(["apt-get", "-qq", "update"], Path(text))
            problem = _download(Path(text))
        if problem:
            print(f"Tests of the alert rules will be skipped: no promtool ({problem[-200:]}).")
            return 0
        [package] = Path(text).glob("*.deb")
        unpacked = Path(text) / "unpacked"
        problem = _run(["dpkg-deb", "--extract", str(package), str(unpacked)], Path(text))
        if problem:
            print(f"dpkg-deb failed: {problem[-300:]}", file=sys.stderr)
            return 1
        shutil.copy2(unpacked / "usr" / "bin" / "promtool", OURS)
    return 0


def _download(folder: Path) -> str:
    options = ["-qq", "-o", "APT::Sandbox::User=root"]
    return _run(["apt-get", *options, "download", "prometheus"], folder)


def _run(command: list[str], folder: Path) -> str:
    """What went wrong, or nothing."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or "failed"


if __name__ == "__main__":
    sys.exit(main())
