"""A real `nodeagent worker --independent` process under test, and what it leaves on the host."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from tests.fakes.http_coordinator import PASSWORD, USER, FakeCoordinator, FakeTask


def wait_until(condition: Callable[[], Any], *, within_s: float = 60.0, what: str = "") -> Any:
    """The first true value of `condition`; fails at the deadline."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {within_s} s: {what or condition}")


def committed(task: FakeTask, within_s: float = 60.0) -> dict[str, Any]:
    """The result of a task, once the worker has committed it."""
    wait_until(lambda: task.is_archived, within_s=within_s, what=f"commit, ops so far {task.ops}")
    assert task.result is not None
    return task.result


def living(marker: str) -> list[int]:
    """Processes (not zombies) that have `marker` somewhere in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if marker.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def members(archive: bytes) -> dict[str, tarfile.TarInfo]:
    """The members of a tar.gz by name."""
    with tarfile.open(fileobj=BytesIO(archive), mode="r:gz") as tar:
        return {member.name: member for member in tar.getmembers()}


def content(archive: bytes, name: str) -> bytes:
    """One member's bytes."""
    with tarfile.open(fileobj=BytesIO(archive), mode="r:gz") as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


class WorkerProcess:
    """One worker; `log` grows as it speaks."""

    def __init__(self, home: Path, coordinator: FakeCoordinator, *flags: str, **env: str) -> None:
        self.cache = home / "cache"
        self.config = home / "config"
        self.log_file = home / "worker.log"
        self.home = home
        with self.log_file.open("ab") as log:
            self.process = self._start(coordinator, flags, env, log)

    def _start(
        self,
        coordinator: FakeCoordinator,
        flags: tuple[str, ...],
        env: dict[str, str],
        log: BinaryIO,
    ) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "nodeagent", "worker", "--independent"),
                *("--coordinator", coordinator.http.url, "--user", USER),
                *("--polling-interval", "50ms", "--heartbeat-interval", "200ms"),
                *("--log-format", "json", "--log-level", "debug", *flags),
            ],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "XDG_CACHE_HOME": str(self.cache),
                "XDG_CONFIG_HOME": str(self.config),
                "MITO_PASSWORD": PASSWORD,
                "PYTHONPATH": str(Path.cwd()),
                "PYTHONWARNINGS": "error",
                **env,
            },
            stderr=log,
            stdin=subprocess.DEVNULL,
        )

    @property
    def log(self) -> list[dict[str, Any]]:
        lines = self.log_file.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.log if line["event"] == name]

    def work_dirs(self) -> list[Path]:
        base = self.cache / "mitosis"
        return sorted(base.iterdir()) if base.exists() else []

    def send(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    def wait(self, within_s: float = 60.0) -> int:
        return self.process.wait(timeout=within_s)

    def rss_kib(self) -> int:
        """The most memory the worker ever had resident."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1])
        raise AssertionError("no VmHWM")


@contextmanager
def running_worker(
    home: Path, coordinator: FakeCoordinator, *flags: str, **env: str
) -> Iterator[WorkerProcess]:
    """A worker that is gone, with everything it started, when the block ends."""
    worker = WorkerProcess(home, coordinator, *flags, **env)
    try:
        yield worker
    finally:
        if worker.process.poll() is None:
            worker.process.kill()
        worker.process.wait()
        # Shown by pytest only when the test fails.
        print(worker.log_file.read_text()[-20_000:])
