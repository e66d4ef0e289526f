"""Cleaning up after workers that were killed, in a process of its own.

`main` removes what dead iceoryx2 nodes left below a root. Sweeper runs it for iceoryx_server, one
process at a time, waited for by a thread that does nothing else.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import structlog

from nodeagent.ipc.iceoryx_services import make_node

log = structlog.stdlib.get_logger(__name__)

# The package directory goes last on the path: nothing beside it may shadow the standard library.
_BOOT: Final = (
    "import sys; sys.path.append(sys.argv[1]); from nodeagent.ipc.sweep import main; main()"
)
_PACKAGE_ROOT: Final = str(Path(__file__).resolve().parents[2])
_TIMEOUT_S: Final = 60.0
_JOIN_S: Final = 70.0


class Sweeper:
    """Runs sweeps; asked again while one runs, it runs once more."""

    def __init__(self, root: Path, prefix: str) -> None:
        self._command = [sys.executable, "-I", "-c", _BOOT, _PACKAGE_ROOT, str(root), prefix]
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_asked = False

    def sweep_soon(self) -> None:
        """Returns at once."""
        with self._lock:
            self._is_asked = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ipc-sweep", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Wait for a sweep that runs."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(_JOIN_S)

    def _run(self) -> None:
        while self._goes_on():
            try:
                # A bare environment: the agent's own may hold secrets.
                done = subprocess.run(  # noqa: S603 - a fixed command line of our own
                    self._command,
                    env={"PATH": os.defpath},
                    timeout=_TIMEOUT_S,
                    capture_output=True,
                    text=True,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                log.warning("ipc.not_swept", error=str(error))
                continue
            if done.returncode:
                log.warning("ipc.not_swept", error=done.stderr[-500:])

    def _goes_on(self) -> bool:
        with self._lock:
            is_asked, self._is_asked = self._is_asked, False
            if not is_asked:
                self._thread = None
            return is_asked


def main() -> None:
    """Clean up after every dead node; the last two arguments are root and prefix."""
    node = make_node(sys.argv[-2], sys.argv[-1])
    state = node.try_cleanup_dead_nodes()
    if state.failed_cleanups:
        sys.exit(f"{state.failed_cleanups} dead nodes could not be cleaned up")
