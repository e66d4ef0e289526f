"""Repetition and statistics: every figure is the median of three, with its spread."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

REPETITIONS = 3


@dataclass(frozen=True)
class Figure:
    """One measured quantity."""

    values: tuple[float, ...]
    unit: str

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """Largest minus smallest, as a share of the median."""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0


@dataclass(frozen=True)
class Row:
    """What one benchmark says: ours against the limit and the peer of the same run."""

    name: str
    ours: Figure
    limit: Figure | None = None
    peer: Figure | None = None
    peer_name: str = ""
    goal: str = ""
    notes: list[str] = field(default_factory=list)

    def ratio(self, other: Figure | None) -> float | None:
        return self.ours.median / other.median if other and other.median else None


def repeat(measure: Callable[[], float], unit: str, times: int = REPETITIONS) -> Figure:
    return Figure(tuple(measure() for _ in range(times)), unit)
