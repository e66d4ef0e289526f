"""The numbers of the overview: what runs, waits and failed, and what the fleet does."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from console.selectors.statements import fetch_one
from console.viewer import Viewer
from core.clock import now

FAILED_WINDOW: Final = timedelta(hours=24)
MAX_COUNT: Final = 10_000  # beyond it a number is shown with a plus


@dataclass(frozen=True, slots=True)
class Queue:
    """Tasks and live suites. Failed ones and single waiting ones are counted to MAX_COUNT."""

    running: int
    waiting: int
    failed: int
    live_suites: int
    paused_suites: int
    blocked_suites: int

    @property
    def has_more_failed(self) -> bool:
        return self.failed >= MAX_COUNT


@dataclass(frozen=True, slots=True)
class Fleet:
    """Managers by what they do; workers of those that are not offline."""

    total: int
    working: int
    idle: int
    offline: int
    draining: int
    quarantined: int
    workers: float
    executing: float

    @property
    def online(self) -> int:
        return self.total - self.offline

    @property
    def utilisation(self) -> int | None:
        """Percent of the workers that execute a task; None without workers."""
        return None if not self.workers else round(100 * min(1.0, self.executing / self.workers))


def read_queue(viewer: Viewer) -> Queue:
    parameters = {
        "group_ids": viewer.group_ids(),
        "failed_since": now() - FAILED_WINDOW,
        "max_count": MAX_COUNT,
    }
    return fetch_one("overview/queue", Queue, parameters)


def read_fleet(viewer: Viewer) -> Fleet:
    return fetch_one("overview/fleet", Fleet, {"group_ids": viewer.group_ids()})
