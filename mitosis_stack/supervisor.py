"""Runs the whole stack in the foreground: starts the parts in order, restarts what dies, stops all.

Single-threaded on purpose: children are tied to the thread that started them (PDEATHSIG).
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from mitosis_stack import guardian
from mitosis_stack.errors import ChildFailed, StopRequested
from mitosis_stack.layout import DataDir
from mitosis_stack.process import Child, ChildSpec, log_tail, spawn, wait_until
from mitosis_stack.services import Service
from mitosis_stack.state import ChildState, StackState

TICK_S = 0.25
# A part that dies more often than this within the window is broken, not unlucky.
MAX_RESTARTS = 5
RESTART_WINDOW_S = 60.0
RESTART_BACKOFF_S = (0.0, 0.5, 1.0, 2.0, 4.0)

Report = Callable[[str], None]


class Supervisor:
    """Owns the children of one data directory while it holds the lock."""

    def __init__(self, data: DataDir, lock_descriptor: int, state: StackState, say: Report) -> None:
        self._data = data
        self._lock_descriptor = lock_descriptor
        self._state = state
        self._say = say
        self._services: dict[str, Service] = {}
        self._children: dict[str, Child] = {}
        self._deaths: dict[str, list[float]] = {}
        self._restart_at: dict[str, float] = {}
        self._signals = 0
        self._guardian: subprocess.Popen[bytes] | None = None
        self._pipe = -1

    def open(self) -> None:
        """Take over the signals and post the guardian before the first child exists."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        self._state.pid = os.getpid()
        self._state.start_mark = guardian.start_time(os.getpid()) or ""
        self._post_guardian()
        self._write_state()

    def start(self, services: Sequence[Service]) -> None:
        """Start parts side by side and wait until all of them are ready."""
        for service in services:
            service.prepare()
            self._services[service.name] = service
            self._spawn(service)
        for service in services:
            self._wait_ready(service)
            self._say(f"  {service.name:14} ready")

    def run_once(self, spec: ChildSpec, timeout_s: float) -> None:
        """Run a command to its end; the last line it printed is the error message."""
        child = spawn(spec)
        self._register(child)
        try:
            wait_until(
                lambda: child.poll() == 0,
                child=child,
                timeout_s=timeout_s,
                check=self.check_stop,
            )
        except ChildFailed:
            if child.poll() is None:
                raise
            last = log_tail(spec.log, 1) or f"status {child.poll()}"
            msg = f"{spec.name} failed: {last} (log: {spec.log})"
            raise ChildFailed(msg) from None
        finally:
            child.kill()
            self._tell_guardian(f"remove {child.pid}")

    def serve(self) -> None:
        """Watch until a signal asks to stop; ChildFailed when a part cannot be kept alive."""
        self.set_phase("ready")
        while not self._signals:
            self._tend()
            time.sleep(TICK_S)

    def stop_all(self) -> None:
        """Stop in the reverse order of starting; a second signal makes it immediate."""
        self.set_phase("stopping")
        asked = self._signals
        for name, child in reversed(list(self._children.items())):
            child.stop(force=lambda: self._signals > asked)
            self._forget(name, child)
        self.set_phase("stopped")
        if self._guardian is not None:
            os.close(self._pipe)
            self._guardian.wait()

    def set_phase(self, phase: str) -> None:
        self._state.phase = phase
        self._write_state()

    def check_stop(self) -> None:
        if self._signals:
            raise StopRequested

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1

    def _spawn(self, service: Service) -> None:
        child = spawn(service.spec())
        self._children[service.name] = child
        self._register(child)
        restarts = len(self._deaths.get(service.name, ()))
        self._state.children[service.name] = ChildState(
            name=service.name,
            pid=child.pid,
            state="starting",
            started_at=time.time(),  # noqa: TID251 - shown to people
            restarts=restarts,
            log=str(child.spec.log),
        )
        self._write_state()

    def _wait_ready(self, service: Service) -> None:
        child = self._children[service.name]
        wait_until(
            service.is_ready,
            child=child,
            timeout_s=service.start_timeout_s,
            check=self.check_stop,
        )
        self._mark(service.name, "running")

    def _tend(self) -> None:
        if self._guardian is None or self._guardian.poll() is not None:
            self._post_guardian()
        for name, child in list(self._children.items()):
            status = child.poll()
            if status is not None:
                self._forget(name, child)
                self._plan_restart(name, status)
            elif self._state.children[name].state == "starting" and self._services[name].is_ready():
                self._mark(name, "running")
        now = time.monotonic()
        for name, due in list(self._restart_at.items()):
            if now >= due:
                del self._restart_at[name]
                self._services[name].prepare()
                self._spawn(self._services[name])

    def _plan_restart(self, name: str, status: int) -> None:
        now = time.monotonic()
        deaths = [at for at in self._deaths.get(name, ()) if now - at < RESTART_WINDOW_S]
        deaths.append(now)
        self._deaths[name] = deaths
        log = self._data.logs / f"{name}.log"
        if len(deaths) > MAX_RESTARTS:
            tail = log_tail(log, 3)
            often = f"{len(deaths)} times in a minute, last with status {status}"
            msg = f"{name} keeps dying ({often}); see {log}. Last lines:\n{tail}"
            raise ChildFailed(msg)
        self._say(f"  {name} ended with status {status}; starting it again (log: {log})")
        self._restart_at[name] = now + RESTART_BACKOFF_S[len(deaths) - 1]
        self._state.children[name].state = "restarting"
        self._write_state()

    def _forget(self, name: str, child: Child) -> None:
        child.kill()
        self._tell_guardian(f"remove {child.pid}")
        del self._children[name]
        self._mark(name, "stopped")

    def _mark(self, name: str, state: str) -> None:
        self._state.children[name].state = state
        self._write_state()

    def _write_state(self) -> None:
        try:
            self._state.write(self._data.state)
        except OSError as error:
            # A full disk must not take the stack down: the file is only a description.
            self._say(f"  cannot write {self._data.state}: {error.strerror}")

    def _post_guardian(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
        read, write = os.pipe()
        # Isolated mode and no site: it needs the standard library only and starts in milliseconds.
        self._guardian = subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, "-I", "-S", str(Path(guardian.__file__)), str(read)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(read, self._lock_descriptor),
            start_new_session=True,  # Ctrl-C at the terminal is not for it
        )
        os.close(read)
        self._pipe = write
        for child in self._children.values():
            self._register(child)

    def _register(self, child: Child) -> None:
        self._tell_guardian(f"add {child.pid} {child.start_mark} {int(child.spec.stop_signal)}")

    def _tell_guardian(self, line: str) -> None:
        # If it died, _tend posts a new one and tells it everything.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, f"{line}\n".encode())
