"""What a manager measured over a window of time, as columns for charts.

Called by the manager API.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from django.db import connection

from core.pg import load_sql
from managers.metrics import OWN, split_name

_SAMPLES: Final = load_sql("managers", "metrics/samples")
_HOURS: Final = load_sql("managers", "metrics/hours")

MAX_POINTS: Final = 720  # a chart has no more pixels; also what an answer can carry
SAMPLE_STEP_S: Final = 30
HOUR_S: Final = 3600
SAMPLES_UP_TO_S: Final = 24 * HOUR_S  # beyond that the hourly roll-ups are read
COMPLETED: Final = f"{OWN}.total_tasks_completed"
FAILED: Final = f"{OWN}.total_tasks_failed"

Column = list[float | None]


@dataclass(frozen=True, slots=True)
class History:
    """Equal steps; a number that was not measured in a step is None there."""

    step_s: int
    at: list[datetime] = field(default_factory=list)
    means: dict[str, Column] = field(default_factory=dict)
    peaks: dict[str, Column] = field(default_factory=dict)

    def families(self) -> dict[str, dict[str, Column]]:
        """Columns by family and name."""
        found: dict[str, dict[str, Column]] = {}
        for full, column in self.means.items():
            family, name = split_name(full)
            found.setdefault(family, {})[name] = column
        return found

    def points(self, family: str) -> list[tuple[datetime, dict[str, float]]]:
        """The steps of one family, each with the numbers it has."""
        columns = self.families().get(family, {})
        rows = [
            (at, {name: x for name, column in columns.items() if (x := column[place]) is not None})
            for place, at in enumerate(self.at)
        ]
        return [row for row in rows if row[1]]

    def growth(self, full: str) -> float:
        """How much a counter grew; a restart of its agent begins at zero again."""
        grown, before = 0.0, None
        for value in self.peaks.get(full, []):
            if value is None:
                continue
            if before is not None:
                grown += value - before if value >= before else value
            before = value
        return grown


def read_history(manager_id: int, *, window_s: int) -> History:
    """The newest `window_s` seconds; at most MAX_POINTS steps."""
    is_recent = window_s <= SAMPLES_UP_TO_S
    unit_s = SAMPLE_STEP_S if is_recent else HOUR_S
    step_s = unit_s * max(1, -(-window_s // (MAX_POINTS * unit_s)))
    history = History(step_s)
    parameters = {"manager_id": manager_id, "window_s": window_s, "step_s": step_s}
    with connection.cursor() as cursor:
        cursor.execute(_SAMPLES if is_recent else _HOURS, parameters)
        rows = cursor.fetchall()
    history.at.extend(sorted({row[0] for row in rows}))
    places = {at: place for place, at in enumerate(history.at)}
    for at, name, mean, peak in rows:
        for columns, value in ((history.means, mean), (history.peaks, peak)):
            column = columns.setdefault(name, [None] * len(places))
            column[places[at]] = value
    return history
