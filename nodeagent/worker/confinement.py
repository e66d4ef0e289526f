"""What a launcher gives up before it runs anybody's command, once and for all.

Enters the slot's cgroups, binds itself to its cores, sets limits, drops to the sandbox user and
forbids itself to gain anything back; every command inherits that. Called by launcher_main, so
the standard library only.
"""

import contextlib
import os
import resource
from collections.abc import Mapping
from typing import NamedTuple

from nodeagent.worker.process_tree import forbid_new_privileges

# Soft limit of a login shell; a command that needs more raises it itself, up to the hard one.
_OPEN_FILES = 1024
_MAX_OPEN_FILES = 524_288
# Commands go before anything else when memory runs out, and always before their launcher.
_COMMAND_OOM_SCORE = b"1000"
_OWN_OOM_SCORE = b"0"


class Confinement(NamedTuple):
    """`cgroups`: directories to enter. Without `uid` the launcher stays who it is."""

    cgroups: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()
    uid: int | None = None
    gid: int | None = None


def from_json(fields: Mapping[str, object]) -> Confinement:
    """The reverse of `_asdict`; the sender is this very program."""
    cgroups, cores = fields["cgroups"], fields["cores"]
    uid, gid = fields["uid"], fields["gid"]
    assert isinstance(cgroups, list | tuple)
    assert isinstance(cores, list | tuple)
    assert uid is None or isinstance(uid, int)
    assert gid is None or isinstance(gid, int)
    return Confinement(tuple(map(str, cgroups)), tuple(map(int, cores)), uid, gid)


def confine(confinement: Confinement) -> None:
    """Irrevocable. Raises OSError, and then nothing may be run."""
    for directory in confinement.cgroups:
        _enter(directory)
    if confinement.cores:
        os.sched_setaffinity(0, confinement.cores)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_OPEN_FILES, most), most))
    os.umask(0o022)
    os.chdir("/")
    if confinement.uid is not None and confinement.gid is not None:
        os.setgroups([])
        os.setresgid(confinement.gid, confinement.gid, confinement.gid)
        os.setresuid(confinement.uid, confinement.uid, confinement.uid)
    forbid_new_privileges()


def _enter(directory: str) -> None:
    fd = os.open(f"{directory}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"0")
    finally:
        os.close(fd)


class OomMark:
    """Switches the score that a command inherits; the file is opened while we may still do it.

    Without privileges a process with hidden memory may not open its own: the order of victims is
    then the kernel's, and an OOM kill of the launcher instead ends the same attempt as proven.
    """

    def __init__(self) -> None:
        self._fd = -1
        with contextlib.suppress(PermissionError):
            self._fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)

    def __enter__(self) -> None:
        self._write(_COMMAND_OOM_SCORE)

    def __exit__(self, *_: object) -> None:
        self._write(_OWN_OOM_SCORE)

    def _write(self, score: bytes) -> None:
        # Refused where an administrator has given this whole service another floor.
        if self._fd >= 0:
            with contextlib.suppress(PermissionError):
                os.pwrite(self._fd, score, 0)
