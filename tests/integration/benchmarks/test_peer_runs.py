"""Peers of the benchmarks: measured, capped, or missing with the reason; nothing is left."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.peers import catalogue, environments, keeper, runs
from benchmarks.peers.catalogue import PEERS, POOL, Peer

LONG_S = 60.0
# Two forks and a session of its own: neither a process group nor the parent leads to the sleep.
DETACHING = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", sys.argv[1]])
    os._exit(0)
os.wait()
"""


def _keep(*argv: str, network: str = "host", limit_s: float = LONG_S) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, keeper.__file__, network, str(limit_s), *argv],
        stdout=subprocess.PIPE,
        timeout=LONG_S,
        check=False,
    )
    if done.returncode == keeper.NO_NETWORK:
        pytest.skip("namespaces are not allowed here")
    assert done.returncode == 0
    said: dict[str, object] = {}
    for line in done.stdout.splitlines():
        said |= json.loads(line)
    return said


def _is_running(mark: str) -> bool:
    return any(mark in (one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"]))


def _mark() -> str:
    """Seconds to sleep that nobody else sleeps."""
    return f"600.{os.getpid()}{time.monotonic_ns()}"


def test_a_server_that_detached_itself_is_ended_with_its_driver():
    mark = _mark()
    said = _keep(sys.executable, "-c", DETACHING, mark)
    assert said == {"status": 0, "is_late": False, "ended": ["sleep"]}
    assert not _is_running(mark)


def test_a_driver_that_takes_too_long_is_killed():
    mark = _mark()
    said = _keep("sleep", mark, limit_s=0.5)
    assert (said["status"], said["is_late"]) == (-signal.SIGKILL, True)
    assert not _is_running(mark)


def test_descendants_end_with_the_keeper_when_it_is_told_to_leave():
    mark = _mark()
    argv = [sys.executable, keeper.__file__, "host", "60", "sleep", mark]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        while not any("sleep" in one.name() for one in psutil.Process(process.pid).children()):
            time.sleep(0.05)
        process.terminate()
    assert not _is_running(mark)


def test_a_peer_that_listens_everywhere_sees_nothing_but_loopback():
    show = "import json, socket; print(json.dumps({'seen': [n for _, n in socket.if_nameindex()]}))"
    seen = _keep(sys.executable, "-c", show, network="loopback")["seen"]
    assert "lo" in seen
    assert not any(name.startswith(("eth", "en", "wl")) for name in seen)
    listen = (
        "import json, socket; s = socket.create_server(('127.0.0.1', 0));"
        "socket.create_connection(s.getsockname()); print(json.dumps({'reached': True}))"
    )
    assert _keep(sys.executable, "-c", listen, network="loopback")["reached"]


def test_a_peer_is_measured_from_submit_to_the_last_result():
    reading = runs.take(POOL, workers=2, count=40)
    assert (reading.done, reading.is_capped, reading.ended) == (40, False, ())
    assert 0 < reading.submit_s <= reading.seconds
    assert reading.rate == pytest.approx(40 / reading.seconds)


def test_the_cap_ends_a_repetition_and_what_was_done_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runs, "CAP_S", 0.3)
    reading = runs.take(POOL, workers=1, count=1_000_000)
    assert reading.is_capped
    assert 0 < reading.done < 1_000_000
    assert reading.seconds >= 0.3


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which a test writes a driver or requirements of its own."""
    (tmp_path / "drivers").mkdir()
    (tmp_path / "requirements").mkdir()
    shared = catalogue.HERE / "drivers" / "stopwatch.py"
    (tmp_path / "drivers" / "stopwatch.py").write_text(shared.read_text())
    monkeypatch.setattr(catalogue, "HERE", tmp_path)
    monkeypatch.setattr(environments, "HOME", tmp_path / "home")
    return tmp_path


def test_a_peer_that_fails_is_missing_with_its_own_words(foreign: Path):
    (foreign / "drivers" / "run_broken.py").write_text("raise SystemExit('no licence')")
    with pytest.raises(environments.PeerMissing, match=r"did not start \(status 1\): no licence"):
        runs.take(Peer("broken", "Broken"), workers=2, count=10)


def test_a_peer_that_does_not_start_in_time_is_missing(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runs, "START_S", 1.0)
    driver = "import time, stopwatch\nstopwatch.measure(lambda plan: time.sleep(60))"
    (foreign / "drivers" / "run_slow.py").write_text(driver)
    with pytest.raises(environments.PeerMissing, match="not ready within 1 s"):
        runs.take(Peer("slow", "Slow"), workers=2, count=10)


def test_a_peer_that_cannot_be_installed_is_missing(foreign: Path):
    line = f"--no-index\nno-such-thing==1.0 --hash=sha256:{'0' * 64}\n"
    (foreign / "requirements" / "absent.txt").write_text(line)
    with pytest.raises(environments.PeerMissing, match=r"not installed: .*no-such-thing"):
        runs.take(Peer("absent", "Absent"), workers=2, count=10)
    assert not (foreign / "home" / "absent" / ".ready").exists()


def test_every_peer_has_a_driver_and_locked_requirements():
    for peer in PEERS:
        assert peer.driver.is_file()
        assert peer.requirements is not None
        wanted = [line for line in peer.requirements.read_text().splitlines() if "==" in line]
        assert wanted
        assert all(line.endswith("\\") for line in wanted), f"{peer.name}: hashes are missing"
