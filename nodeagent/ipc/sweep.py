"""Cleaning up after workers that were killed, in a process of its own.

`main` removes what dead iceoryx2 nodes left below a root. Sweeper runs it for iceoryx_server, one
process at a time, waited for by a thread that does nothing else. Nobody waits for the room, but a
sweep costs as much as some hundred fetches: it comes a little later, for all that died meanwhile,
and leaves the cores to everybody else.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

import structlog

from nodeagent.ipc.iceoryx_services import make_node

log = structlog.stdlib.get_logger(__name__)

# The package directory goes last on the path: nothing beside it may shadow the standard library.
_BOOT: Final = (
    "import os, sys; os.nice(19); sys.path.append(sys.argv[1]);"
    "from nodeagent.ipc.sweep import main; main()"
)
_PACKAGE_ROOT: Final = str(Path(__file__).resolve().parents[2])
_TIMEOUT_S: Final = 60.0
_JOIN_S: Final = 70.0
_GATHER_S: Final = 1.0
# A node cannot be cleaned up while its services are just going: somebody else died, or left.
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.2


class Sweeper:
    """Runs sweeps; asked again while one runs, it runs once more."""

    def __init__(self, prefix: str) -> None:
        self._command = [sys.executable, "-I", "-c", _BOOT, _PACKAGE_ROOT]
        self._prefix = prefix
        self._root = Path()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_asked = False
        self._is_closing = threading.Event()

    def sweep_soon(self, root: Path) -> None:
        """Returns at once."""
        with self._lock:
            self._root = root
            self._is_asked = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ipc-sweep", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Wait for a sweep that runs; from now on none begins: everything will be removed."""
        self._is_closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(_JOIN_S)

    def _run(self) -> None:
        while self._goes_on():
            self._is_closing.wait(_GATHER_S)
            with self._lock:
                self._is_asked = False  # whoever dies from now on may be missed by this one
            if self._is_closing.is_set():
                continue
            try:
                # A bare environment: the agent's own may hold secrets.
                done = subprocess.run(  # noqa: S603 - a fixed command line of our own
                    [*self._command, str(self._root), self._prefix],
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
            if not self._is_asked:
                self._thread = None
            return self._is_asked


def main() -> None:
    """Clean up after every dead node; the last two arguments are root and prefix."""
    node = make_node(sys.argv[-2], sys.argv[-1])
    failed = 0
    for _ in range(_ATTEMPTS):
        failed = node.try_cleanup_dead_nodes().failed_cleanups
        if not failed:
            return
        time.sleep(_PAUSE_S)
    sys.exit(f"{failed} dead nodes could not be cleaned up")
