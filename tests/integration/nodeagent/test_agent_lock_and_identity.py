"""One agent per machine, and who it is, on a real disk with real processes."""

import os
import signal
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from nodeagent.errors import AnotherAgentRunning, HostUnusable
from nodeagent.identity import Identity, Tokens, load_identity, store_identity
from nodeagent.machine_lock import MachineLock

# Takes the lock, starts a child that outlives it, and says so.
HOLDER = """
import subprocess, sys
from pathlib import Path
from nodeagent.machine_lock import MachineLock
MachineLock(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]).acquire()
child = subprocess.Popen(["sleep", "60"], close_fds=False)
print(child.pid, flush=True)
sys.stdin.read()
"""


def identity() -> Identity:
    tokens = Tokens(
        token="secret-a", refresh_token="secret-r", lifetime_s=3600, issued_at=datetime.now(UTC)
    )
    return Identity(manager_uuid=uuid4(), coordinator="http://c", tokens=tokens)


def lock(tmp_path: Path, data: str = "data", instance: str = "") -> MachineLock:
    (tmp_path / data).mkdir(exist_ok=True)
    return MachineLock(tmp_path / "locks", tmp_path / data, instance)


def test_a_killed_agent_frees_the_lock_although_its_child_lives(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "locks"), str(tmp_path / "data"), ""],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            with pytest.raises(AnotherAgentRunning, match=rf"pid {holder.pid}.*--instance"):
                lock(tmp_path, "other").acquire()
            holder.send_signal(signal.SIGKILL)
            holder.wait()
            assert Path(f"/proc/{child}").exists()
            second = lock(tmp_path)
            second.acquire()
            second.release()
        finally:
            os.kill(child, signal.SIGKILL)


def test_agents_with_names_of_their_own_share_a_machine_but_no_directory(tmp_path: Path) -> None:
    first, second = lock(tmp_path, "one", "one"), lock(tmp_path, "two", "two")
    first.acquire()
    second.acquire()
    with pytest.raises(AnotherAgentRunning, match="an agent called one already runs here"):
        lock(tmp_path, "three", "one").acquire()
    with pytest.raises(AnotherAgentRunning, match="already uses"):
        lock(tmp_path, "one", "four").acquire()
    # What was taken on the way to a refusal is given back.
    first.release()
    lock(tmp_path, "one", "four").acquire()
    second.release()


def test_a_lock_directory_of_somebody_else_is_not_trusted(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (tmp_path / "locks").symlink_to(target)
    with pytest.raises(HostUnusable, match="lock_dir"):
        lock(tmp_path).acquire()
    assert list(target.iterdir()) == []


def test_the_identity_is_private_and_comes_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    assert load_identity(path) is None
    old_umask = os.umask(0)
    try:
        first = identity()
        store_identity(path, first)
    finally:
        os.umask(old_umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_identity(path) == first
    second = msgspec.structs.replace(first, coordinator="http://d")
    store_identity(path, second)
    assert load_identity(path) == second
    assert [entry.name for entry in tmp_path.iterdir()] == ["identity.json"]
    assert "secret" not in repr(first)


def test_a_damaged_identity_is_named_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    path.write_text("{")
    with pytest.raises(HostUnusable, match="remove it to register anew"):
        load_identity(path)
    assert path.read_text() == "{"
