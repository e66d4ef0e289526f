"""Installs Chromium for the browser tests when it is absent and this machine allows it.

Run by `make test` before pytest. Without root and without Chromium the browser tests are skipped,
and this says so in one line.
"""

import os
import shutil
import subprocess
import sys

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """The path of an installed browser."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def main() -> int:
    if find_chromium():
        return 0
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        print("Browser tests will be skipped: no Chromium; installing it needs root on Debian.")
        return 0
    print("Installing Chromium for the browser tests", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        done = subprocess.run(
            ["apt-get", "-qq", *command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            print(f"apt-get {command[0]} failed: {done.stderr.strip()[-300:]}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
