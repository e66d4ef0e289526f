"""What `mitosis up`, `down` and `status` do, without any printing style of the command line.

`up` runs the supervisor in this process; with detach it starts itself again in the background and
waits for its verdict.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from mitosis_stack.agents import build_agents
from mitosis_stack.assembly import (
    base_url,
    bootstrap_spec,
    build_backing,
    build_coordinator,
    coordinator_environment,
)
from mitosis_stack.errors import AlreadyRunning, ChildFailed, StackError, StopRequested
from mitosis_stack.guardian import start_time
from mitosis_stack.layout import DataDir, read_json, remove_runtime_dir
from mitosis_stack.lock import DataDirLock
from mitosis_stack.ports import choose_http_port
from mitosis_stack.probes import http_status
from mitosis_stack.settings import StackSettings
from mitosis_stack.state import StackState, read_state
from mitosis_stack.supervisor import Supervisor

Say = Callable[[str], None]

# A killed supervisor's children are gone within 5 s; then the guardian lets go of the lock.
LOCK_WAIT_S = 10.0
# Migrations of a large database.
BOOTSTRAP_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 90.0
# Stands for a line break in the one-line messages of the background supervisor.
LINE_BREAK = "\x1f"


@dataclass(frozen=True)
class Credentials:
    url: str
    username: str
    password: str


@dataclass(frozen=True)
class Status:
    """What is known of the stack on a data directory."""

    running: bool
    state: StackState | None
    ready: bool


def up(settings: StackSettings, say: Say, on_ready: Callable[[Credentials], None]) -> int:
    """Run the stack until a signal; returns the exit status."""
    data = DataDir(settings.data_dir)
    data.create()
    lock = _take_lock(data)
    previous = read_state(data.state)
    remembered = previous.ports if previous else {}
    port = choose_http_port(settings.port, remembered.get("http"))
    backing = build_backing(data, settings, remembered)
    url = base_url(port)
    env = coordinator_environment(data, settings, backing, url)
    coordinator = build_coordinator(data, settings, port, env)
    state = StackState(url=url, ports={"http": port, **backing.ports})
    supervisor = Supervisor(data, lock.descriptor, state, say)
    supervisor.open()
    try:
        supervisor.start(backing.services)
        supervisor.run_once(bootstrap_spec(data, env, url), BOOTSTRAP_TIMEOUT_S)
        supervisor.start(coordinator)
        credentials = read_credentials(data)
        admin = (credentials.username, credentials.password)
        supervisor.start(build_agents(data, settings.agents, url, admin, settings.inherited))
        on_ready(credentials)
        supervisor.serve()
    except StopRequested:
        say("Stopped while starting.")
    finally:
        supervisor.stop_all()
        remove_runtime_dir(backing.sockets)
        lock.release()
    return 0


def up_detached(settings: StackSettings, say: Say, on_ready: Callable[[Credentials], None]) -> int:
    """Start the supervisor in the background; returns when it is ready or has failed."""
    data = DataDir(settings.data_dir)
    data.create()
    read, write = os.pipe()
    log = data.logs / "supervisor.log"
    with log.open("ab") as sink:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "mitosis_stack", *_arguments(settings, write)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            pass_fds=(write,),
            start_new_session=True,
            cwd="/",
        )
    os.close(write)
    with os.fdopen(read) as verdicts:
        return _follow(verdicts, process, log, say, lambda: on_ready(read_credentials(data)))


def _follow(
    verdicts: Iterable[str],
    process: subprocess.Popen[bytes],
    log: Path,
    say: Say,
    on_ready: Callable[[], None],
) -> int:
    """Repeat what the background supervisor says until it is ready, fails or dies."""
    for line in verdicts:
        word, _, text = line.rstrip("\n").partition(" ")
        if word == "say":
            say(text)
        elif word == "error":
            raise ChildFailed(text.replace(LINE_BREAK, "\n"))
        elif word == "ready":
            on_ready()
            return 0
    msg = f"The supervisor ended with status {process.wait()} before it was ready; see {log}."
    raise ChildFailed(msg)


def down(data_dir: Path, say: Say) -> int:
    """Stop the stack on that data directory and wait until its last process is gone."""
    data = DataDir(data_dir)
    lock = DataDirLock(data.lock)
    if not data.root.is_dir() or lock.is_free():
        say(f"No stack runs on {data.root}.")
        return 0
    state = read_state(data.state)
    if state is not None and state.start_mark and start_time(state.pid) == state.start_mark:
        os.kill(state.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while not lock.is_free():
        if time.monotonic() > deadline:
            msg = f"{data.root}: not stopped within {STOP_TIMEOUT_S:.0f} s; see {data.logs}."
            raise StackError(msg)
        time.sleep(0.05)
    say(f"Stopped the stack on {data.root}.")
    return 0


def status(data_dir: Path) -> Status:
    data = DataDir(data_dir)
    running = data.root.is_dir() and not DataDirLock(data.lock).is_free()
    state = read_state(data.state)
    port = state.ports.get("http") if state else None
    ready = running and port is not None and http_status(port, "/readyz") == 200
    return Status(running=running, state=state, ready=ready)


def read_credentials(data: DataDir) -> Credentials:
    stored = read_json(data.admin)
    if stored is None:
        msg = f"{data.admin} is missing or damaged; restart the stack to write it again."
        raise StackError(msg)
    return Credentials(stored["url"], stored["username"], stored["password"])


def _take_lock(data: DataDir) -> DataDirLock:
    lock = DataDirLock(data.lock)
    try:
        lock.acquire()
    except AlreadyRunning:
        state = read_state(data.state)
        if state is not None and start_time(state.pid) == state.start_mark:
            msg = (
                f"A stack already runs on {data.root} (pid {state.pid}, {state.url}); "
                f"stop it with: mitosis down --data-dir {data.root}"
            )
            raise AlreadyRunning(msg) from None
        # Its supervisor is gone and the guardian is clearing up: that takes seconds.
        lock.acquire(wait_s=LOCK_WAIT_S)
    return lock


def _arguments(settings: StackSettings, notify: int) -> list[str]:
    arguments = ["--data-dir", str(settings.data_dir), "--agents", str(settings.agents)]
    arguments += ["--server", settings.asgi_server, "--notify", str(notify)]
    if settings.port is not None:
        arguments += ["--port", str(settings.port)]
    return arguments
