"""The coordinator's own processes: the ASGI server, the Celery worker and Celery beat."""

import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mitosis_protocol.limits import MAX_FRAME_BYTES
from mitosis_stack.errors import StackError
from mitosis_stack.ports import LOOPBACK
from mitosis_stack.probes import http_status
from mitosis_stack.process import ChildSpec

SETTINGS_MODULE = "mitosis_site.settings.prod"
# Existing workers keep idle connections for 90 s; closing earlier races with their next request.
KEEP_ALIVE_S = 120
APPLICATION = "mitosis_site.asgi:application"


@dataclass(frozen=True)
class AsgiServer:
    """HTTP and WebSockets on one loopback port."""

    port: int
    log: Path
    env: Mapping[str, str]
    kind: str = "uvicorn"
    name: str = "web"
    start_timeout_s: float = 60.0

    def prepare(self) -> None:
        if self.kind not in SERVERS:
            msg = f"Unknown ASGI server {self.kind!r}: choose one of {', '.join(SERVERS)}."
            raise StackError(msg)

    def spec(self) -> ChildSpec:
        return ChildSpec(
            name=self.name,
            argv=(sys.executable, *SERVERS[self.kind](self.port)),
            log=self.log,
            env=self.env,
            stop_grace_s=15.0,
        )

    def is_ready(self) -> bool:
        return http_status(self.port, "/readyz") == 200


def _uvicorn(port: int) -> tuple[str, ...]:
    return (
        "-m", "uvicorn", APPLICATION,
        "--host", LOOPBACK, "--port", str(port),
        "--loop", "uvloop", "--http", "httptools", "--ws", "websockets-sansio",
        "--lifespan", "on", "--no-access-log", "--no-server-header",
        "--ws-max-size", str(MAX_FRAME_BYTES),
        # Small frames on a fast network: compressing them costs memory and time, and gains nothing.
        "--ws-per-message-deflate", "false",
        "--timeout-keep-alive", str(KEEP_ALIVE_S),
        "--timeout-graceful-shutdown", "8",
    )  # fmt: skip


def _daphne(port: int) -> tuple[str, ...]:
    # Without the two limits daphne would end every WebSocket after a day.
    return (
        "-m", "daphne", "-b", LOOPBACK, "-p", str(port),
        "--websocket_timeout", "-1", "--http-timeout", "600", "--no-server-name",
        "--verbosity", "0",  # its access lines would carry query strings
        APPLICATION,
    )  # fmt: skip


SERVERS = {"uvicorn": _uvicorn, "daphne": _daphne}


@dataclass(frozen=True)
class CeleryProcess:
    """Runs periodic jobs (`worker`) or announces when they are due (`beat`)."""

    role: str
    directory: Path
    log: Path
    env: Mapping[str, str]
    start_timeout_s: float = 30.0

    @property
    def name(self) -> str:
        return f"celery-{self.role}"

    def prepare(self) -> None:
        self.directory.mkdir(exist_ok=True, mode=0o700)

    def spec(self) -> ChildSpec:
        return ChildSpec(
            name=self.name,
            argv=(sys.executable, "-m", "celery", "-A", "mitosis_site", *self._arguments()),
            log=self.log,
            env=self.env,
            cwd=self.directory,
            # "Cold" shutdown: jobs are idempotent statements, waiting for them would gain nothing.
            stop_signal=signal.SIGQUIT if self.role == "worker" else signal.SIGTERM,
            stop_grace_s=5.0,
            # Any other signal ends Celery only after a talk with its broker, which is gone as well.
            orphan_signal=signal.SIGKILL,
        )

    def is_ready(self) -> bool:
        return True  # nothing waits for Celery; if it dies, the supervisor sees that

    def _arguments(self) -> tuple[str, ...]:
        if self.role == "beat":
            return ("beat", "--schedule", "beat-schedule", "--pidfile", "")
        # Threads: the jobs wait for PostgreSQL, and forked children would cost 60 MB each.
        return ("worker", "--pool", "threads", "--concurrency", "2",
                "--without-gossip", "--without-mingle")  # fmt: skip
