"""Drives `mitosis up/down/status` as a user would, and looks at the processes it leaves."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import boto3
import httpx2
import psutil

MITOSIS = (sys.executable, "-m", "mitosis_client.cli.main")
# An ordinary user; the one capability lets him read a Python below root's private home.
AS_NOBODY = (
    "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
)  # fmt: skip
EXTERNAL = ("DATABASE_URL", "REDIS_URL", "MITOSIS_KEYS_DIR", "DJANGO_SETTINGS_MODULE")


@dataclass
class Stack:
    """The embedded stack on one data directory."""

    data_dir: Path
    environment: dict[str, str] = field(default_factory=dict)
    as_nobody: bool = False

    def run(
        self, command: str, *flags: str, timeout_s: float = 90
    ) -> "subprocess.CompletedProcess[str]":
        prefix = AS_NOBODY if self.as_nobody else ()
        return subprocess.run(
            [*prefix, *MITOSIS, command, "--data-dir", str(self.data_dir), *flags],
            env=self.clean_environment(),
            text=True,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            cwd="/",
        )

    def up(self, *flags: str) -> None:
        """Without node agents unless the flags ask for some: most tests have no use for them.

        On any port: the default one is for the stack that follows the documentation to the letter.
        """
        agents = () if "--agents" in flags else ("--agents", "0")
        port = () if "--port" in flags else ("--port", "0")
        done = self.run("up", "--detach", *agents, *port, *flags)
        assert done.returncode == 0, done.stdout + done.stderr

    def down(self) -> None:
        done = self.run("down")
        assert done.returncode == 0, done.stdout + done.stderr

    def clean_environment(self) -> dict[str, str]:
        """Without the test stores that the harness put into this process."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in EXTERNAL and not name.startswith(("S3_", "MITOSIS_"))
        }
        return {**kept, **self.environment}

    @property
    def state(self) -> dict:
        return json.loads((self.data_dir / "stack.json").read_text())

    @property
    def admin(self) -> dict[str, str]:
        return json.loads((self.data_dir / "admin.json").read_text())

    @property
    def url(self) -> str:
        return self.state["url"]

    @property
    def supervisor_pid(self) -> int:
        return self.state["pid"]

    def child_pid(self, name: str) -> int:
        return self.state["children"][name]["pid"]

    def processes(self) -> list[psutil.Process]:
        """The supervisor and everything below it."""
        supervisor = psutil.Process(self.supervisor_pid)
        return [supervisor, *supervisor.children(recursive=True)]

    def guardians(self) -> list[psutil.Process]:
        return [p for p in self.processes() if any(w.endswith("guardian.py") for w in _words(p))]

    def is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/readyz", timeout=3).status_code == 200
        except httpx2.HTTPError:
            return False

    def token(self) -> str:
        digest = hashlib.md5(self.admin["password"].encode()).digest()
        answer = httpx2.post(
            f"{self.url}/login",
            json={"username": self.admin["username"], "md5_password": list(digest), "retain": True},
        )
        answer.raise_for_status()
        return answer.json()["token"]

    def create_group(self, name: str) -> None:
        answer = httpx2.post(
            f"{self.url}/groups",
            json={"group_name": name},
            headers={"Authorization": f"Bearer {self.token()}"},
        )
        assert answer.status_code == 200, answer.text

    def has_group(self, name: str) -> bool:
        answer = httpx2.get(
            f"{self.url}/users/groups", headers={"Authorization": f"Bearer {self.token()}"}
        )
        answer.raise_for_status()
        return name in answer.json()["groups"]

    def s3(self):
        secrets = json.loads((self.data_dir / "secrets.json").read_text())
        return boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.state['ports']['s3']}",
            aws_access_key_id=secrets["s3_access_key"],
            aws_secret_access_key=secrets["s3_secret_key"],
            region_name="us-east-1",
        )


def eventually(check: Callable[[], bool], *, within_s: float, what: str) -> float:
    """Poll until `check` holds; returns how long it took."""
    began = time.monotonic()
    while not check():
        assert time.monotonic() - began < within_s, f"not within {within_s} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


def alive(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Those still running; a zombie waiting for its parent does not count."""
    return [process for process in processes if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _words(process: psutil.Process) -> list[str]:
    """Its command line; empty once it is gone."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
