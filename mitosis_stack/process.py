"""Starts and stops one child process; knows signals, logs and death of the parent, nothing else.

Children get their own session, so Ctrl-C reaches the supervisor alone, which decides the order.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mitosis_stack.errors import ChildFailed
from mitosis_stack.guardian import start_time
from mitosis_stack.privileges import ServiceUser

PR_SET_PDEATHSIG = 1
# A log that outgrew this is set aside at the next start; one generation is kept.
LOG_ROTATE_BYTES = 32 * 1024 * 1024

# Loaded before any fork: a child between fork and exec must not import or allocate much.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True)
class ChildSpec:
    """Everything needed to start a child again."""

    name: str
    argv: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    user: ServiceUser | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_grace_s: float = 10.0
    # What the kernel sends when supervisor and guardian are gone and nobody is left to insist.
    orphan_signal: signal.Signals | None = None


class Child:
    """One running process."""

    def __init__(self, spec: ChildSpec, process: subprocess.Popen[bytes]) -> None:
        self.spec = spec
        self.pid = process.pid
        self.started = time.monotonic()
        self.start_mark = start_time(process.pid) or ""
        self._process = process

    def poll(self) -> int | None:
        """The exit status once it has ended (negative: killed by that signal)."""
        if self._process.returncode is None and _has_ended(self.pid):
            # Before it is reaped its number is still ours: nothing it started may outlive it.
            self._kill_group()
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def stop(self, *, force: Callable[[], bool] = lambda: False) -> None:
        """Ask, wait the spec's grace (or until `force` says so), then kill the whole group."""
        self.signal(self.spec.stop_signal)
        deadline = time.monotonic() + self.spec.stop_grace_s
        while self.poll() is None and time.monotonic() < deadline and not force():
            time.sleep(0.02)
        self.kill()

    def kill(self) -> None:
        """End it and everything in its group at once; nothing happens if it has ended."""
        if self._process.returncode is None:
            self._kill_group()
            self._process.wait()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def spawn(spec: ChildSpec) -> Child:
    """Start the program; it dies with this process on Linux even if the guardian is gone too."""
    _rotate(spec.log)
    user = spec.user
    try:
        with spec.log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - argv is built by this package
                spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(spec.env),
                cwd=spec.cwd,
                start_new_session=True,
                preexec_fn=_die_with_parent(spec.orphan_signal or spec.stop_signal),  # noqa: PLW1509 - single-threaded caller
                user=user.uid if user else None,
                group=user.gid if user else None,
                extra_groups=[] if user else None,
            )
    except OSError as error:
        msg = f"{spec.name} could not be started: {error.strerror} ({error.filename})."
        raise ChildFailed(msg) from None
    return Child(spec, process)


def _has_ended(pid: int) -> bool:
    """Whether our child is a zombie now; it stays one."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _die_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    if _LIBC is None:
        return None
    parent = os.getpid()

    def request() -> None:
        # Runs after the change of user, which would clear the setting.
        _LIBC.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return request


def _rotate(log: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > LOG_ROTATE_BYTES:
            log.replace(log.with_suffix(".log.1"))


def log_tail(log: Path, lines: int = 5) -> str:
    """The last lines of a log for an error message."""
    try:
        with log.open("rb") as source:
            source.seek(max(0, log.stat().st_size - 4096))
            text = source.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-lines:])


def wait_until(
    ready: Callable[[], bool],
    *,
    child: Child,
    timeout_s: float,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Poll `ready`; raise ChildFailed when the child dies first or time runs out."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        check()
        status = child.poll()
        if status is not None:
            raise ChildFailed(_story(child, f"ended with status {status} while starting"))
        if time.monotonic() > deadline:
            raise ChildFailed(_story(child, f"was not ready within {timeout_s:.0f} s"))
        time.sleep(0.03)


def _story(child: Child, what: str) -> str:
    tail = log_tail(child.spec.log, 3)
    shown = f" Last lines:\n{tail}" if tail else ""
    return f"{child.spec.name} {what}; see {child.spec.log}.{shown}"
