"""A virtual environment per peer below `.mitosis/bench-peers`, from its locked requirements.

Never the project's own: a peer may want other versions of what the project uses. Made once and
again when the lock file has changed.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.peers.catalogue import Peer

HOME: Final = Path(__file__).parents[2] / ".mitosis" / "bench-peers"
INSTALL_S: Final = 900.0


class PeerMissing(Exception):
    """Why this peer has no figure."""


def python_of(peer: Peer) -> Path:
    """The interpreter with the peer installed. Raises PeerMissing."""
    if peer.requirements is None:
        return Path(sys.executable)
    directory = HOME / peer.name
    mark = directory / ".ready"
    digest = hashlib.sha256(peer.requirements.read_bytes()).hexdigest()
    if not mark.exists() or mark.read_text() != digest:
        print(f"  installing {peer.title}", flush=True)
        _install(peer.requirements, directory)
        mark.write_text(digest)
    return directory / "bin" / "python"


def _install(requirements: Path, directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    _call([sys.executable, "-m", "venv", str(directory)])
    pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:"]
    _call([*pip, "--requirement", str(requirements)])


def _call(argv: list[str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"not installed within {INSTALL_S:.0f} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise PeerMissing(f"not installed: {(lines or ['no message'])[-1]}")
