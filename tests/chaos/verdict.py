"""What a chaos run found, and how it is told."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.faultpoints import POINTS
from tests.chaos.invariants import DOUBLED, DRIFT, LOST, STUCK, Violation

MAX_SAID: Final = 20


@dataclass
class Verdict:
    """`found` and `unexpected` must be empty."""

    faults: int = 0
    directed: int = 0  # of the faults: those that happened until the directed part was through
    tasks: int = 0
    in_war: int = 0  # of the tasks: those that had ended before the last strike
    executed_in_war: int = 0  # of these: not cancelled
    strikes: int = 0
    in_flight: int = 0  # of the strikes: those that met attempts in the hands of runners
    points: frozenset[str] = frozenset()
    by_kind: Counter[str] = field(default_factory=Counter)
    found: list[Violation] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    seconds_of_war: float = 0.0
    seconds_to_peace: float = 0.0
    checks: int = 0
    slowest_check_s: float = 0.0

    def count(self, what: str) -> int:
        return sum(1 for one in self.found if one.counts_as == what)

    @property
    def is_clean(self) -> bool:
        return not self.found and not self.unexpected

    @property
    def silent_points(self) -> list[str]:
        return sorted(set(POINTS) - self.points)

    def __str__(self) -> str:
        return (
            f"faults={self.faults} tasks={self.tasks} lost={self.count(LOST)} "
            f"doubled={self.count(DOUBLED)} stuck={self.count(STUCK)} drift={self.count(DRIFT)}"
        )

    def lines(self) -> list[str]:
        """The whole story; the verdict itself is the last line of a run."""
        kinds = [f"  {count:5} {kind}" for kind, count in sorted(self.by_kind.items())]
        fired = len(POINTS) - len(self.silent_points)
        silent = f", never {', '.join(self.silent_points)}" if self.silent_points else ""
        faults = (
            f"  {self.directed} directed faults, {self.faults - self.directed} random ones; "
            f"{fired} of {len(POINTS)} faultpoints fired{silent}"
        )
        tasks = (
            f"  {self.in_flight} of {self.strikes} strikes met work in flight; {self.in_war} tasks "
            f"ended in {self.seconds_of_war:.0f} s of war, {self.executed_in_war} not by a cancel"
        )
        checks = (
            f"  {self.checks} checks of the invariants, the slowest took "
            f"{self.slowest_check_s:.1f} s; quiet {self.seconds_to_peace:.0f} s after"
        )
        found = (str(one) for one in self.found[:MAX_SAID])
        return [*kinds, faults, tasks, checks, *found, *self.unexpected[:MAX_SAID]]
