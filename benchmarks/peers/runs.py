"""One run of one peer: its store, its driver in its environment, and the figure that came out.

The driver says in JSON lines when it is ready and what it measured; benchmarks.peers.keeper adds
how it ended. A peer that does not get that far is missing, with the reason.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.peers import keeper
from benchmarks.peers.catalogue import Peer
from benchmarks.peers.environments import PeerMissing, python_of
from benchmarks.peers.stores import running_store

START_S: Final = 90.0
CAP_S: Final = 120.0  # of one repetition; what was done by then counts
STOP_S: Final = 20.0


@dataclass(frozen=True)
class Reading:
    """What a peer did from the first submit to the last result, or to the cap."""

    done: int
    seconds: float
    submit_s: float
    is_capped: bool
    version: str
    ended: tuple[str, ...]

    @property
    def rate(self) -> float:
        return self.done / self.seconds


def take(peer: Peer, *, workers: int, count: int) -> Reading:
    """Raises PeerMissing."""
    python = python_of(peer)
    with (
        tempfile.TemporaryDirectory(prefix="mb-", ignore_cleanup_errors=True) as directory,
        running_store(peer.store) as store,
    ):
        plan = {"count": count, "workers": workers, "store": store, "directory": directory}
        plan |= {"start_s": START_S, "cap_s": CAP_S, "stop_s": STOP_S, "distribution": peer.name}
        errors = Path(directory) / "driver.log"
        said = _drive([str(python), str(peer.driver), json.dumps(plan)], peer, directory, errors)
        if "done" not in said:
            raise PeerMissing(_reason(said, errors))
    return Reading(
        done=said["done"],
        seconds=said["seconds"],
        submit_s=said["submit_s"],
        is_capped=said["done"] < count,
        version=said["version"],
        ended=tuple(said["ended"]),
    )


def _drive(argv: list[str], peer: Peer, directory: str, errors: Path) -> dict[str, Any]:
    limit_s = START_S + CAP_S + STOP_S + 10
    with errors.open("wb") as log:
        done = subprocess.run(
            [sys.executable, keeper.__file__, peer.network, str(limit_s), *argv],
            env=_environment(Path(argv[0]), peer, directory),
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=log,
            check=False,
        )
    if done.returncode == keeper.NO_NETWORK:
        raise PeerMissing("listens on every interface, and namespaces are not allowed here")
    if done.returncode != 0:
        raise RuntimeError(f"processes of {peer.title} may be left: {_tail(errors)}")
    said: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        said |= json.loads(line)
    return said


def _environment(python: Path, peer: Peer, directory: str) -> dict[str, str]:
    """Little, so that nothing of the project's environment reaches the peer; no proxy either."""
    return {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(peer.driver.parent),
        "HOME": directory,
        "TMPDIR": directory,
        "LC_ALL": "C.UTF-8",
        # Peers that would tell their makers about this run.
        "RAY_USAGE_STATS_ENABLED": "0",
        "PARSL_TRACKING": "false",
    }


def _reason(said: dict[str, Any], errors: Path) -> str:
    if "ready_s" in said:
        return f"no result after it was ready (status {said['status']}): {_tail(errors)}"
    if said["is_late"] or said["status"] == -14:  # the driver's own alarm clock
        return f"not ready within {START_S:.0f} s: {_tail(errors)}"
    return f"did not start (status {said['status']}): {_tail(errors)}"


def _tail(errors: Path) -> str:
    lines = errors.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"
