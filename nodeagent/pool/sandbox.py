"""As whom commands run: a user of their own per slot when the agent may change users.

Called by pool at start and by hooks. Without the privileges everything runs as the agent's own
user: still confined, but a command could then signal its worker. `Sandbox.reason` says so.
"""

import os
import pwd
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from nodeagent.errors import ConfigInvalid

# Numbers that no distribution hands out: a thousand for each instance, of which 256 are slots.
_FIRST_UID = 1_000_000_000
_INSTANCES = 1_000_000
_PER_INSTANCE = 1_000
# Inside a container with the usual 65,536 mapped users: above people, below systemd's own.
_FIRST_CONTAINER_UID = 60_600
_CONTAINER_SLOTS = 512
# CHOWN, DAC_OVERRIDE, KILL, SETGID, SETUID: what it takes to run others' code and clean up after.
_NEEDED_CAPABILITIES = (0, 1, 5, 6, 7)


class Identity(msgspec.Struct, frozen=True):
    """A user and a group by number."""

    uid: int
    gid: int


class Sandbox(msgspec.Struct, frozen=True):
    """Who a slot's commands are. `reason` is set when they are nobody but the agent itself."""

    fixed: Identity | None = None
    first_uid: int | None = None
    reason: str = ""

    @property
    def is_separate(self) -> bool:
        return self.fixed is not None or self.first_uid is not None

    def identity(self, slot: int) -> Identity | None:
        if self.fixed is not None or self.first_uid is None:
            return self.fixed
        return Identity(self.first_uid + slot, self.first_uid + slot)


def choose_sandbox(
    instance: str,
    user: str | None,
    status: Path = Path("/proc/self/status"),
    uid_map: Path = Path("/proc/self/uid_map"),
) -> Sandbox:
    """From the configured user and what this process is allowed to do. Raises ConfigInvalid."""
    if not _has_capabilities(status.read_text()):
        if user is not None and pwd.getpwuid(os.getuid()).pw_name != user:
            raise ConfigInvalid(f"sandbox_user {user!r} needs an agent that runs as root")
        return Sandbox(reason="the agent is not privileged: commands run as its own user")
    if user is not None:
        return Sandbox(fixed=_look_up(user))
    mapped = list(_read_map(uid_map.read_text()))
    offset = zlib.crc32(instance.encode()) % _INSTANCES * _PER_INSTANCE
    for first, count in (
        (_FIRST_UID + offset, _PER_INSTANCE),
        (_FIRST_CONTAINER_UID, _CONTAINER_SLOTS),
    ):
        if any(start <= first and first + count <= end for start, end in mapped):
            return Sandbox(first_uid=first)
    return Sandbox(reason="this user namespace has no users to spare for commands")


def _look_up(user: str) -> Identity:
    try:
        entry = pwd.getpwnam(user)
    except KeyError as error:
        raise ConfigInvalid(f"sandbox_user {user!r} does not exist") from error
    if entry.pw_uid == 0:
        raise ConfigInvalid("sandbox_user must not be root")
    return Identity(entry.pw_uid, entry.pw_gid)


def _has_capabilities(status: str) -> bool:
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            held = int(value, 16)
            return all(held >> number & 1 for number in _NEEDED_CAPABILITIES)
    return False


def _read_map(text: str) -> Iterable[tuple[int, int]]:
    """First and one past the last user of each mapped range."""
    for line in text.splitlines():
        first, _, count = map(int, line.split())
        yield first, first + count
