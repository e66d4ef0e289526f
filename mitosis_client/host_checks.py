"""What a host needs to run a node agent, checked one by one; `mitosis doctor` shows them.

Looks only at this machine and at the coordinator's answers, and changes nothing that stays.
"""

import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

import httpx2
import msgspec
import psutil

from mitosis_client.transport import timeouts, tls_for

GIB: Final = 1 << 30
MIN_DISK: Final = 2 * GIB
MIN_SHM: Final = 64 << 20
MAX_SKEW_S: Final = 10.0  # tokens and leases are judged by the clock
CGROUP: Final = Path("/sys/fs/cgroup")


class Check(msgspec.Struct, frozen=True):
    """One finding: `ok`, `warning` (works, with less) or `error` (does not work)."""

    name: str
    level: str
    found: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "level": self.level, "found": self.found, "fix": self.fix}


def check_host(url: str, data_dir: Path) -> list[Check]:
    """All findings, in the order an agent would stumble over them."""
    checks: list[Callable[[], Check]] = [
        _python,
        _cgroups,
        _rights,
        _ipc,
        _shared_memory,
        lambda: _disk(data_dir),
        _descriptors,
    ]
    return [*(check() for check in checks), *_coordinator(url)]


def _python() -> Check:
    text = ".".join(map(str, sys.version_info[:3]))
    if sys.platform != "linux":
        return Check("system", "error", sys.platform, "agents run on Linux")
    return Check("system", "ok", f"Linux, Python {text}, {psutil.cpu_count() or 1} cores")


def _cgroups() -> Check:
    if (CGROUP / "cgroup.controllers").exists():
        known = (CGROUP / "cgroup.controllers").read_text().split()
        kind, writable = "version 2", os.access(CGROUP / "cgroup.procs", os.W_OK)
    elif (CGROUP / "memory").is_dir():
        known = sorted(path.name for path in CGROUP.iterdir() if path.is_dir())
        kind, writable = "version 1", os.access(CGROUP / "memory", os.W_OK)
    else:
        fix = "limits cannot be enforced here; suites that ask for them are refused"
        return Check("cgroups", "warning", "none", fix)
    missing = sorted({"memory", "pids"} - set(known))
    found = f"{kind}: {', '.join(known)}"
    if missing:
        return Check("cgroups", "warning", found, f"no controller: {', '.join(missing)}")
    if not writable:
        return Check("cgroups", "warning", f"{found}, read only", "run as root, or delegate a tree")
    return Check("cgroups", "ok", found)


def _rights() -> Check:
    if os.geteuid() == 0:
        return Check("rights", "ok", "root: commands run as a user of their own")
    fix = "commands will run as the agent's own user; run it as root to separate them"
    return Check("rights", "warning", f"user {os.geteuid()}", fix)


def _ipc() -> Check:
    if importlib.util.find_spec("iceoryx2") is not None:
        return Check("ipc", "ok", "iceoryx2")
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as probe:
        probe.bind(f"{folder}/s")
    return Check("ipc", "warning", "Unix sockets", "no iceoryx2 for this machine: somewhat slower")


def _shared_memory() -> Check:
    shm = Path("/dev/shm")  # noqa: S108 - looked at, nothing is put there
    if not shm.is_dir() or not os.access(shm, os.W_OK):
        return Check("shared memory", "error", "no /dev/shm to write to", "mount a tmpfs there")
    free = shutil.disk_usage(shm).free
    level = "ok" if free >= MIN_SHM else "warning"
    fix = "" if level == "ok" else "below 64 MiB: give the container a larger --shm-size"
    return Check("shared memory", level, f"{free >> 20} MiB free", fix)


def _disk(data_dir: Path) -> Check:
    place = data_dir
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    found = f"{free / GIB:.1f} GiB free at {place}"
    if not os.access(place, os.W_OK):
        return Check("disk", "error", f"{place} is not writable", "choose another --data-dir")
    fix = "" if free >= MIN_DISK else "an agent stops taking tasks when the disk is nearly full"
    return Check("disk", "ok" if not fix else "warning", found, fix)


def _descriptors() -> Check:
    most = os.sysconf("SC_OPEN_MAX")
    if most >= 4096:
        return Check("open files", "ok", f"at most {most}")
    return Check("open files", "warning", f"at most {most}", "ulimit -n 4096 for many workers")


def _coordinator(url: str) -> list[Check]:
    try:
        before = datetime.now(UTC)
        response = httpx2.get(f"{url}/health", timeout=timeouts(5), verify=tls_for(url))
        after = datetime.now(UTC)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        fix = "check the address, the network and `mitosis status` over there"
        return [Check("coordinator", "error", f"{url}: {str(error) or type(error).__name__}", fix)]
    if response.status_code != httpx2.codes.OK:
        return [Check("coordinator", "error", f"{url}: HTTP {response.status_code}", "see its log")]
    took_ms = (after - before).total_seconds() * 1000
    return [
        Check("coordinator", "ok", f"{url} answers in {took_ms:.0f} ms"),
        _clock(response.headers.get("Date", ""), before, after),
    ]


def _clock(date: str, before: datetime, after: datetime) -> Check:
    try:
        theirs = parsedate_to_datetime(date)
    except ValueError:
        return Check("clock", "warning", "the coordinator tells no time", "check a proxy between")
    # Their header has whole seconds; ours is the middle of the exchange.
    skew_s = (theirs - (before + (after - before) / 2)).total_seconds() + 0.5
    found = f"{skew_s:+.1f} s against the coordinator"
    if abs(skew_s) <= MAX_SKEW_S:
        return Check("clock", "ok", found)
    return Check("clock", "error", found, "set the clock (NTP): tokens would be refused")
