"""What cgroups this host offers: version 2 with controllers, version 1, both at once, or none.

Reads mountinfo and the agent's own membership, touches nothing. slots finds out by trying which
of it may be used. Every controller is taken from where it is, never from where it should be.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

AGENT_LEAF = "mitosis-agents"  # where an agent moves to when its group must have no members
# Those that limits, figures and cores need.
CONTROLLERS = ("memory", "pids", "cpu", "cpuset")
_ESCAPE = re.compile(r"\\([0-7]{3})")


class Hierarchy(msgspec.Struct, frozen=True):
    """One mounted tree, and the group in it below which we may make our own."""

    version: int
    controllers: tuple[str, ...]
    root: Path
    own_group: Path


def find_hierarchies(
    mountinfo: Path = Path("/proc/self/mountinfo"), membership: Path = Path("/proc/self/cgroup")
) -> list[Hierarchy]:
    """Useful trees: version 2 first, then those of version 1 that hold one of our controllers."""
    own = dict(_read_membership(membership.read_text()))
    found: list[Hierarchy] = []
    for kind, mount_point, mount_root, options in _read_mounts(mountinfo.read_text()):
        if kind == "cgroup2":
            key: frozenset[str] = frozenset()
        else:
            key = next((names for names in own if names and names <= options), frozenset({"?"}))
        if key not in own or any(_key(known) == (kind == "cgroup2", key) for known in found):
            continue
        group = _below(mount_point, mount_root, own[key])
        if group.name == AGENT_LEAF:
            group = group.parent
        controllers = _controllers_v2(group) if kind == "cgroup2" else key & set(CONTROLLERS)
        if kind == "cgroup2" or controllers:
            ordered = tuple(name for name in CONTROLLERS if name in controllers)
            version = 2 if kind == "cgroup2" else 1
            found.append(Hierarchy(version, ordered, mount_point, group))
    return sorted(found, key=lambda hierarchy: -hierarchy.version)


def _key(known: Hierarchy) -> tuple[bool, frozenset[str]]:
    return known.version == 2, frozenset() if known.version == 2 else frozenset(known.controllers)


def _read_membership(text: str) -> Iterable[tuple[frozenset[str], str]]:
    """Lines `number:controllers:path`; no controllers means version 2."""
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        yield frozenset(names.split(",")) - {""}, path


def _read_mounts(text: str) -> Iterable[tuple[str, Path, str, set[str]]]:
    """Kind, mount point, root of the mount, and options of every cgroup mount."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        if tail[0] in ("cgroup", "cgroup2"):
            options = set(tail[2].split(",")) if len(tail) > 2 else set()
            yield tail[0], Path(_unescape(fields[4])), _unescape(fields[3]), options


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def _below(mount_point: Path, mount_root: str, path: str) -> Path:
    """Where a group is to be found; a container may see its own group as the mount's root."""
    if mount_root != "/" and (path + "/").startswith(mount_root.rstrip("/") + "/"):
        path = path[len(mount_root.rstrip("/")) :]
    group = mount_point / path.lstrip("/")
    return group if ".." not in group.parts and group.is_dir() else mount_point


def _controllers_v2(group: Path) -> set[str]:
    try:
        return set((group / "cgroup.controllers").read_text().split())
    except OSError:
        return set()
