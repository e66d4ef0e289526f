"""Runs the validators of other projects on our deployment files, without an engine or a cluster."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
VENV = Path(sys.executable).parent
# Variables without which a coordinator does not start.
REQUIRED = re.findall(r'required\("(\w+)"', (ROOT / "mitosis_site" / "env.py").read_text())
assert len(REQUIRED) >= 6


def ours(name: str) -> str:
    """A program of the locked development packages."""
    program = VENV / name
    assert program.exists(), f"{name} is missing: make setup"
    return str(program)


def systems(name: str) -> str:
    """A program of the machine; where there is none the test is skipped, and says so."""
    # The sbin directories are not on everybody's PATH.
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip(f"{name} is not installed on this machine")
    return program


def check(*command: str, env: Mapping[str, str] | None = None) -> str:
    """Its output; fails with it when the validator complains."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=env, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
