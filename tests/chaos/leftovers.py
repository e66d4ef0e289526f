"""What the operating system still shows of agents that have left: nothing, if all is well."""

import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from nodeagent.ipc.names import prefix_of
from nodeagent.marker import MARKER

_CGROUPS: Final = Path("/sys/fs/cgroup")
_SHARED_MEMORY: Final = Path("/dev/shm")


@dataclass(frozen=True)
class Host:
    """One agent as the system knows it."""

    marker: str
    instance: str
    data_dir: Path


def stray_processes(host: Host) -> list[str]:
    entry = f"{MARKER}={host.marker}".encode()
    return [
        f"process {pid} is left: {_command(pid)}" for pid in _all_pids() if entry in _environ(pid)
    ]


def stray_cgroups(host: Host) -> list[str]:
    roots = _CGROUPS.rglob(f"mitosis-{host.instance}")
    return [f"control group {path} is left" for path in roots]


def stray_segments(host: Host) -> list[str]:
    """Shared memory of this manager's agents, in any life."""
    try:
        identity = json.loads((host.data_dir / "identity.json").read_text())
    except FileNotFoundError:
        return []
    prefix = prefix_of(UUID(identity["manager_uuid"]))
    # iceoryx2 keeps one segment of its own per user and never removes it.
    found = [path for path in _SHARED_MEMORY.glob(f"{prefix}*") if "global_mgmt" not in path.name]
    return [f"shared memory {path} is left" for path in found]


def stray_files(host: Host) -> list[str]:
    """Work directories, sockets of the IPC, directories of suites."""
    places = ("workers", "ipc", "suites")
    # The IPC's lock is kept: by it the next life knows whether an earlier one still lives.
    kept = host.data_dir / "ipc" / "agent.lock"
    found = [path for place in places for path in _files(host.data_dir / place) if path != kept]
    return [f"{path} is left" for path in found]


def unsent_results(host: Host) -> list[str]:
    path = host.data_dir / "outbox.sqlite"
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as outbox:
        [(count,)] = outbox.execute("SELECT count(*) FROM lines")
    return [f"{count} results are still in {path}"] if count else []


def unpaid_debts(host: Host) -> list[str]:
    return [f"a cleanup is still owed: {path}" for path in _files(host.data_dir / "debts")]


CHECKS: Final[tuple[Callable[[Host], list[str]], ...]] = (
    stray_processes,
    stray_cgroups,
    stray_segments,
    stray_files,
    unsent_results,
    unpaid_debts,
)


def leftovers(hosts: Iterable[Host]) -> list[str]:
    return [text for host in hosts for check in CHECKS for text in check(host)]


def zombies(pid: int) -> list[str]:
    """Children of a living agent that nobody has waited for."""
    found = []
    for child in _all_pids():
        try:
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and int(fields[1]) == pid:
            found.append(f"process {child} is a zombie below agent {pid}")
    return found


def _all_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    except OSError:
        return "?"


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.rglob("*") if not path.is_dir()]
