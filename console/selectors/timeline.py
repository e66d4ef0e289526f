"""When each host ran what, as lanes: attempts of a host that overlap in time lie in several.

A lane stands for a worker. Attempts do not carry the worker's number, so lanes are found by
packing: an attempt takes the first lane of its host that was free when it began, as workers do.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from console.selectors.statements import fetch
from core.clock import now
from mitosis_protocol.enums import Outcome

MAX_TASKS: Final = 150
WINDOW: Final = timedelta(hours=6)
MAX_LANES: Final = 40


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of one task; without an end it goes on."""

    task_uuid: UUID
    runner_uuid: UUID
    began_at: datetime
    ended_at: datetime | None
    outcome_code: int | None
    attempt: int

    @property
    def fate(self) -> str:
        if self.ended_at is None:
            return "running"
        if self.outcome_code is None:
            return "other"  # handed back, or tried again
        return Outcome.from_code(self.outcome_code).value


@dataclass(slots=True)
class Lane:
    runner_uuid: UUID
    number: int
    attempts: list[Attempt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Timeline:
    lanes: list[Lane]
    began_at: datetime
    ended_at: datetime
    hidden_lanes: int

    def share(self, moment: datetime) -> float:
        """Where a moment lies between both ends, from 0 to 1000."""
        whole = max((self.ended_at - self.began_at).total_seconds(), 1.0)
        return round(1000 * (moment - self.began_at).total_seconds() / whole, 1)


def read_timeline(suite_id: int) -> Timeline | None:
    """None as long as nothing ran."""
    moment = now()
    parameters = {"suite_id": suite_id, "max_tasks": MAX_TASKS, "since": moment - WINDOW}
    attempts = fetch("suite/timeline", Attempt, parameters)
    return None if not attempts else arrange(attempts, moment)


def arrange(attempts: Iterable[Attempt], moment: datetime) -> Timeline:
    """Pure. `moment` is the end of what still runs."""
    lanes: dict[UUID, list[Lane]] = {}
    ordered = sorted(attempts, key=lambda one: one.began_at)
    for one in ordered:
        own = lanes.setdefault(one.runner_uuid, [])
        lane = next((lane for lane in own if _is_free(lane, one.began_at)), None)
        if lane is None:
            lane = Lane(one.runner_uuid, len(own) + 1)
            own.append(lane)
        lane.attempts.append(one)
    every = [lane for own in lanes.values() for lane in own]
    ends = [one.ended_at or moment for one in ordered]
    return Timeline(
        every[:MAX_LANES], ordered[0].began_at, max(ends), max(0, len(every) - MAX_LANES)
    )


def _is_free(lane: Lane, moment: datetime) -> bool:
    end = lane.attempts[-1].ended_at
    return end is not None and end <= moment
