"""The agent's own cgroups: one subtree `mitosis-<instance>`, in it one group per worker slot.

Made and removed here, in every hierarchy that allows it; a worker puts limits on its own slot
(attempt_group). Called by pool, and by the fork server when the agent is gone. All calls block:
run them in a thread.
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import structlog

from nodeagent.pool.cgroup_files import PROCS, empty_group, members, remove_group, write_once
from nodeagent.pool.cpu import format_cores, parse_cores
from nodeagent.pool.host import AGENT_LEAF, CONTROLLERS, Hierarchy

log = structlog.stdlib.get_logger(__name__)

# A group whose members do not die in this time means that the host is broken (Slurm's rule).
UNKILLABLE_AFTER_S = 60.0
_HOOKS = "hooks"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class GroupDir(msgspec.Struct, frozen=True):
    """One group's directory in one hierarchy."""

    path: str
    version: int
    controllers: tuple[str, ...]


class SlotGroups(msgspec.Struct, frozen=True):
    """All directories of one slot; empty on a host without cgroups."""

    groups: tuple[GroupDir, ...] = ()


class SlotTree:
    """Our subtrees, and what they can enforce."""

    def __init__(self, instance: str, hierarchies: Iterable[Hierarchy]) -> None:
        self.name = subtree_name(instance)
        # The first one tells who is in a slot, so it must be one that launchers always enter.
        self._candidates = sorted(
            hierarchies, key=lambda each: (each.version != 2, "pids" not in each.controllers)
        )
        self._subtrees: list[GroupDir] = []
        self.trouble: dict[str, str] = {}  # controller to the reason why it is out of reach

    @property
    def subtrees(self) -> tuple[str, ...]:
        """The directories everything of ours is below; the first one knows all members."""
        return tuple(subtree.path for subtree in self._subtrees)

    def can(self, controller: str) -> bool:
        return any(controller in subtree.controllers for subtree in self._subtrees)

    def open(self) -> None:
        """Make the subtrees; what the host refuses is left out and remembered in `trouble`."""
        for hierarchy in self._candidates:
            try:
                subtree = _make_subtree(hierarchy, self.name)
            except OSError as error:
                where = f"cgroup v{hierarchy.version} at {hierarchy.own_group}"
                self._blame(hierarchy.controllers, f"{where}: {error.strerror}")
            else:
                self._blame(
                    set(hierarchy.controllers) - set(subtree.controllers),
                    f"cgroup v2 at {hierarchy.own_group} does not delegate it",
                )
                self._subtrees.append(subtree)
        self._blame(
            (name for name in CONTROLLERS if not self.can(name)), "no cgroup hierarchy has it"
        )

    def ensure(self, local_id: int, cores: Iterable[int] | None) -> SlotGroups:
        """The groups of one slot, made if need be, bound to `cores`. Raises OSError."""
        slot = SlotGroups(
            tuple(
                GroupDir(
                    f"{subtree.path}/{_slot_name(local_id)}", subtree.version, subtree.controllers
                )
                for subtree in self._subtrees
            )
        )
        for group in slot.groups:
            Path(group.path).mkdir(exist_ok=True)
            self._bind(group, cores)
        return slot

    def bind(self, local_id: int, cores: Iterable[int] | None) -> None:
        """Change the cores of a slot; its processes follow at once. Raises OSError."""
        for subtree in self._subtrees:
            for path in _groups_of(Path(subtree.path), _slot_name(local_id)):
                self._bind(GroupDir(str(path), subtree.version, subtree.controllers), cores)

    def ensure_hooks(self) -> tuple[str, ...]:
        """The group of hooks, made if need be: files that put whoever writes 0 into it.

        Raises OSError.
        """
        files: list[str] = []
        for subtree in self._subtrees:
            group = GroupDir(f"{subtree.path}/{_HOOKS}", subtree.version, subtree.controllers)
            Path(group.path).mkdir(exist_ok=True)
            self._bind(group, None)
            files.append(f"{group.path}/{PROCS}")
        return tuple(files)

    def empty_hooks(self) -> int:
        """Kill whatever a hook left running; how many would not die."""
        return self._empty(_HOOKS)

    def empty(self, local_id: int) -> int:
        """Kill everybody in the slot; how many would not die."""
        return self._empty(_slot_name(local_id))

    def members(self, local_id: int) -> set[int]:
        if not self._subtrees:
            return set()
        groups = _groups_of(Path(self._subtrees[0].path), _slot_name(local_id))
        return {pid for group in groups for pid in members(group)}

    def remove(self, local_id: int) -> None:
        """After `empty`. Raises OSError if somebody is still in there."""
        for subtree in self._subtrees:
            for group in _groups_of(Path(subtree.path), _slot_name(local_id)):
                remove_group(group)

    def slot_ids(self) -> set[int]:
        """Slots that have a group now."""
        found: set[int] = set()
        for subtree in self._subtrees:
            for path in Path(subtree.path).glob("slot-*"):
                number = path.name.removeprefix("slot-").split(".")[0]
                if number.isdigit():
                    found.add(int(number))
        return found

    def close(self) -> None:
        """Remove the subtrees. Raises OSError if somebody is still in there."""
        for subtree in self._subtrees:
            remove_group(Path(subtree.path))
        self._subtrees = []

    def _empty(self, name: str) -> int:
        if not self._subtrees:
            return 0
        groups = _groups_of(Path(self._subtrees[0].path), name)
        return sum(empty_group(group, within_s=UNKILLABLE_AFTER_S) for group in groups)

    def _blame(self, controllers: Iterable[str], reason: str) -> None:
        for name in controllers:
            if not self.can(name):
                self.trouble.setdefault(name, reason)

    def _bind(self, group: GroupDir, cores: Iterable[int] | None) -> None:
        if "cpuset" not in group.controllers:
            return
        path = Path(group.path)
        if group.version == 1:
            _inherit(path, "cpuset.mems")
        if cores is None and group.version == 1:
            write_once(path / "cpuset.cpus", (path.parent / "cpuset.cpus").read_text())
        else:
            # An empty list means: all that the parent has.
            write_once(path / "cpuset.cpus", format_cores(cores or ()) or "\n")


def subtree_paths(instance: str, hierarchies: Iterable[Hierarchy]) -> list[Path]:
    """Everywhere an earlier life of this instance may have made its groups."""
    return [place.own_group / subtree_name(instance) for place in _places(hierarchies)]


def end_subtrees(subtrees: Iterable[Path | str], within_s: float = UNKILLABLE_AFTER_S) -> int:
    """Kill everybody below, remove the groups; how many would not die in time."""
    found = [Path(subtree) for subtree in subtrees if Path(subtree).is_dir()]
    left = sum(empty_group(subtree, within_s=within_s) for subtree in found)
    if not left:
        for subtree in found:
            # Somebody may be between death and burial; the next start tries again.
            with contextlib.suppress(OSError):
                remove_group(subtree)
    return left


def subtree_name(instance: str) -> str:
    return f"mitosis-{_UNSAFE.sub('_', instance)}"


def allowed_by_cpuset(hierarchies: Iterable[Hierarchy]) -> list[int] | None:
    """Cores that a slot's cpuset may hold, or None if no hierarchy has the controller."""
    for hierarchy in hierarchies:
        if "cpuset" in hierarchy.controllers:
            for name in ("cpuset.effective_cpus", "cpuset.cpus.effective"):
                with contextlib.suppress(OSError):
                    return parse_cores((hierarchy.own_group / name).read_text())
    return None


def _slot_name(local_id: int) -> str:
    return f"slot-{local_id}"


def _groups_of(subtree: Path, name: str) -> list[Path]:
    """The group of that name, and those that a slot's worker made in its stead."""
    candidates = [subtree / name, *subtree.glob(f"{name}.*")]
    return [path for path in candidates if path.is_dir()]


def _places(hierarchies: Iterable[Hierarchy]) -> Iterable[Hierarchy]:
    """Every group our subtree may be in: below our own, or below a root we fell back to."""
    for hierarchy in hierarchies:
        yield hierarchy
        if hierarchy.version == 2 and hierarchy.root != hierarchy.own_group:
            yield msgspec.structs.replace(hierarchy, own_group=hierarchy.root)


def _make_subtree(hierarchy: Hierarchy, name: str) -> GroupDir:
    if hierarchy.version == 2:
        return _make_subtree_v2(hierarchy, name)
    subtree = hierarchy.own_group / name
    subtree.mkdir(exist_ok=True)
    if "cpuset" in hierarchy.controllers:
        for file in ("cpuset.mems", "cpuset.cpus"):
            _inherit(subtree, file)
    _check_usable(subtree)
    return GroupDir(str(subtree), 1, hierarchy.controllers)


def _make_subtree_v2(hierarchy: Hierarchy, name: str) -> GroupDir:
    """Below our own group, or below the root when only that passes the controllers on."""
    wanted = hierarchy.controllers
    best: GroupDir | None = None
    trouble = OSError(errno.EACCES, os.strerror(errno.EACCES))
    for place in _places([hierarchy]):
        try:
            made = _try_place(place.own_group, name, wanted)
        except OSError as error:
            trouble = error
            continue
        if best is None:
            best = made
        else:
            worse, best = sorted((best, made), key=lambda group: len(group.controllers))
            remove_group(Path(worse.path))
        if len(best.controllers) == len(wanted):
            break
    if best is None:
        raise trouble
    return best


def _try_place(parent: Path, name: str, wanted: Iterable[str]) -> GroupDir:
    subtree = parent / name
    subtree.mkdir(exist_ok=True)
    _check_usable(subtree)
    return GroupDir(str(subtree), 2, _delegate(parent, subtree, wanted))


def _delegate(parent: Path, subtree: Path, wanted: Iterable[str]) -> tuple[str, ...]:
    """Switch controllers on for the slots below `subtree`; those that could be."""
    passed_on: list[str] = []
    for controller in wanted:
        try:
            _switch_on(parent, controller)
            write_once(subtree / "cgroup.subtree_control", f"+{controller}")
        except OSError:
            continue
        passed_on.append(controller)
    return tuple(passed_on)


def _switch_on(parent: Path, controller: str) -> None:
    try:
        write_once(parent / "cgroup.subtree_control", f"+{controller}")
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        # A group with members may not pass controllers on: the agent moves to a leaf of its own.
        # Where others share the group (a login session) it stays busy, and so it shall.
        leaf = parent / AGENT_LEAF
        leaf.mkdir(exist_ok=True)
        write_once(leaf / PROCS, str(os.getpid()))
        write_once(parent / "cgroup.subtree_control", f"+{controller}")


def _check_usable(subtree: Path) -> None:
    """We must be able to put others' processes there, which a mere mkdir does not show."""
    if not os.access(subtree / PROCS, os.W_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def _inherit(group: Path, file: str) -> None:
    write_once(group / file, (group.parent / file).read_text().strip() or "0")
