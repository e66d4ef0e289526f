"""Which cores each worker of a suite gets: the three strategies, and lists of cores as text.

Pure, except for `allowed_cores`. Called by pool with the suite's CpuBinding; slots and confinement
put the result into force.
"""

import os
from collections.abc import Iterable, Sequence

from mitosis_protocol.enums import CpuStrategy
from nodeagent.errors import LimitsUnenforceable


def allowed_cores() -> list[int]:
    """The cores this process may run on; a container or an administrator may have taken some."""
    return sorted(os.sched_getaffinity(0))


def plan(
    strategy: CpuStrategy,
    cores: Sequence[int],
    cores_per_worker: int | None,
    worker_count: int,
    host_cores: Sequence[int],
) -> list[tuple[int, ...]]:
    """The cores of worker 0, 1, ...; raises LimitsUnenforceable when the host has too few.

    Without named cores the host's own are used, so one suite fits every host.
    """
    if not host_cores:
        raise LimitsUnenforceable("this host has no core for workers")
    usable = _usable(cores, host_cores)
    each = cores_per_worker or 1
    if strategy is CpuStrategy.SHARED:
        return [tuple(sorted(_first(usable, cores_per_worker)))] * worker_count
    if each > len(usable):
        raise LimitsUnenforceable(
            f"each worker is to get {each} cores, and there are {len(usable)} to choose from"
        )
    if strategy is CpuStrategy.EXCLUSIVE and each * worker_count > len(usable):
        raise LimitsUnenforceable(
            f"{worker_count} workers with {each} cores of their own need {each * worker_count} "
            f"cores, and there are {len(usable)}"
        )
    return [_turn(usable, number * each, each) for number in range(worker_count)]


def _usable(cores: Sequence[int], host_cores: Sequence[int]) -> list[int]:
    missing = sorted(set(cores) - set(host_cores))
    if missing:
        raise LimitsUnenforceable(
            f"this host has no core {', '.join(map(str, missing))} for workers; "
            f"it has {format_cores(host_cores)}"
        )
    return list(cores) or sorted(host_cores)


def _first(usable: Sequence[int], count: int | None) -> Sequence[int]:
    """Shared with `cores_per_worker`: that many cores in all, the same ones for everybody."""
    if count is None:
        return usable
    if count > len(usable):
        raise LimitsUnenforceable(
            f"{count} shared cores were asked for, and there are {len(usable)} to choose from"
        )
    return usable[:count]


def _turn(usable: Sequence[int], start: int, count: int) -> tuple[int, ...]:
    return tuple(sorted(usable[(start + step) % len(usable)] for step in range(count)))


def format_cores(cores: Iterable[int]) -> str:
    """`0-2,5`, as the kernel writes it."""
    ranges: list[list[int]] = []
    for core in sorted(set(cores)):
        if ranges and core == ranges[-1][1] + 1:
            ranges[-1][1] = core
        else:
            ranges.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def parse_cores(text: str) -> list[int]:
    """The reverse of `format_cores`."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            found.extend(range(int(first), int(last or first) + 1))
    return found
