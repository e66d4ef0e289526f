"""Children, the lock and the guardian with real processes and signals."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mitosis_stack import guardian
from mitosis_stack.errors import AlreadyRunning, ChildFailed
from mitosis_stack.lock import DataDirLock
from mitosis_stack.process import LOG_ROTATE_BYTES, ChildSpec, spawn, wait_until

SLEEPER = (sys.executable, "-S", "-c", "import time; time.sleep(60)")
_IGNORE_TERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
STUBBORN = (sys.executable, "-S", "-c", f"{_IGNORE_TERM}; print('up', flush=True); time.sleep(60)")


@pytest.mark.alone
def test_a_child_that_ignores_its_signal_is_killed_after_the_grace(tmp_path: Path):
    spec = ChildSpec("stubborn", STUBBORN, tmp_path / "log", stop_grace_s=0.3)
    child = spawn(spec)
    _until(lambda: "up" in spec.log.read_text())
    began = time.monotonic()
    child.stop()
    assert child.poll() == -signal.SIGKILL
    assert time.monotonic() - began < 3


def test_a_child_dies_with_its_parent(tmp_path: Path):
    pid_file = tmp_path / "pid"
    code = (
        "import time; from pathlib import Path\n"
        "from mitosis_stack.process import ChildSpec, spawn\n"
        f"child = spawn(ChildSpec('sleeper', {SLEEPER!r}, Path({str(tmp_path / 'log')!r})))\n"
        f"Path({str(pid_file)!r}).write_text(str(child.pid)); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    _until(lambda: pid_file.exists() and pid_file.read_text() != "")
    child = psutil.Process(int(pid_file.read_text()))
    parent.kill()
    parent.wait()
    _until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_waiting_for_a_child_that_dies_tells_its_last_words(tmp_path: Path):
    spec = ChildSpec("broken", (sys.executable, "-c", "exit('no disk')"), tmp_path / "log")
    child = spawn(spec)
    with pytest.raises(ChildFailed, match="no disk"):
        wait_until(lambda: False, child=child, timeout_s=10)


def test_waiting_longer_than_the_limit_fails(tmp_path: Path):
    child = spawn(ChildSpec("slow", SLEEPER, tmp_path / "log"))
    try:
        with pytest.raises(ChildFailed, match="not ready within"):
            wait_until(lambda: False, child=child, timeout_s=0.1)
    finally:
        child.kill()


def test_a_program_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ChildFailed, match="/no/such/program"):
        spawn(ChildSpec("ghost", ("/no/such/program",), tmp_path / "log"))


def test_a_large_log_is_set_aside_at_the_next_start(tmp_path: Path):
    log = tmp_path / "part.log"
    log.write_bytes(b"")
    os.truncate(log, LOG_ROTATE_BYTES + 1)
    spawn(ChildSpec("part", (sys.executable, "-c", "print('new')"), log))._process.wait()
    assert log.read_text() == "new\n"
    assert (tmp_path / "part.log.1").stat().st_size == LOG_ROTATE_BYTES + 1


def test_the_lock_has_one_holder_and_dies_with_it(tmp_path: Path):
    lock = DataDirLock(tmp_path / "lock")
    code = (
        "import time; from pathlib import Path; from mitosis_stack.lock import DataDirLock\n"
        f"lock = DataDirLock(Path({str(tmp_path / 'lock')!r})); lock.acquire()\n"
        "print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline() == b"held\n"
        assert not lock.is_free()
        with pytest.raises(AlreadyRunning):
            lock.acquire()
        holder.kill()
        holder.wait()
    lock.acquire(wait_s=2)
    lock.release()
    assert lock.is_free()


def test_the_guardian_stops_registered_children_when_the_pipe_ends(tmp_path: Path):
    child = spawn(ChildSpec("stubborn", STUBBORN, tmp_path / "log"))
    spared = spawn(ChildSpec("removed", SLEEPER, tmp_path / "log2"))
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", guardian.__file__, str(read)], pass_fds=(read,)
    )
    os.close(read)
    try:
        for one in (child, spared):
            os.write(write, f"add {one.pid} {one.start_mark} {signal.SIGTERM}\n".encode())
        os.write(write, f"remove {spared.pid}\n".encode())
        os.close(write)
        assert process.wait(timeout=10) == 0
        assert child.poll() == -signal.SIGKILL
        assert spared.poll() is None
    finally:
        child.kill()
        spared.kill()


def test_the_guardian_never_touches_a_recycled_pid(tmp_path: Path):
    stranger = spawn(ChildSpec("stranger", SLEEPER, tmp_path / "log"))
    try:
        guardian.stop_all({stranger.pid: ("another start time", int(signal.SIGTERM))})
        assert stranger.poll() is None
    finally:
        stranger.kill()


def _until(check: Callable[[], bool], within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)
