"""The list of suites with their counts, and what the page of one suite shows beside its row."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Count, QuerySet

from accounts.models import User
from console.selectors.statements import fetch, fetch_one
from console.viewer import Viewer
from core.clock import now
from managers.models import PreparationFailure, SuiteAssignment
from mitosis_protocol.enums import SuiteState
from suites.models import TaskSuite
from suites.selectors import SuiteCounts, SuiteFilter, list_suites, suite_counts

PAGE: Final = 50
MAX_HOSTS: Final = 60  # engagements on a suite's page, the live ones first
PACE_WINDOW: Final = timedelta(minutes=5)
_PACE_EVENTS: Final = 1000

HALTS: Final = {
    "paused": {"paused_at__isnull": False},
    "blocked": {"blocked_at__isnull": False},
}


@dataclass(frozen=True, slots=True)
class SuiteLine:
    """One suite of a list."""

    suite: TaskSuite
    counts: SuiteCounts
    hosts: int


@dataclass(frozen=True, slots=True)
class SuitePage:
    lines: list[SuiteLine]
    older: int | None


@dataclass(frozen=True, slots=True)
class Pace:
    """Ends per second as the newest events tell; None without any."""

    per_second: float | None

    def eta(self, left: int) -> timedelta | None:
        if not self.per_second or not left:
            return None
        seconds = left / self.per_second
        # Beyond a year it is no forecast.
        return timedelta(seconds=round(seconds)) if seconds < 365 * 86400 else None


@dataclass(frozen=True, slots=True)
class Host:
    """One engagement of a manager with the suite, and how long each phase took or takes."""

    engagement: SuiteAssignment
    held: int
    running: int

    @property
    def is_live(self) -> bool:
        return self.engagement.released_at is None

    @property
    def prepared_after(self) -> timedelta | None:
        row = self.engagement
        return None if row.prepared_at is None else row.prepared_at - row.created_at

    @property
    def executed_for(self) -> timedelta | None:
        """Until it was asked to leave; None while it executes, or if it never began."""
        row = self.engagement
        end = row.release_asked_at or row.released_at
        return None if row.prepared_at is None or end is None else max(end - row.prepared_at, _ZERO)

    @property
    def cleaned_up_after(self) -> timedelta | None:
        row = self.engagement
        if row.released_at is None or row.release_asked_at is None:
            return None
        return max(row.released_at - row.release_asked_at, _ZERO)


_ZERO: Final = timedelta(0)


def read_suite_page(
    viewer: Viewer,
    wanted: SuiteFilter,
    *,
    halt: str = "",
    before: int | None = None,
    page: int = PAGE,
) -> SuitePage:
    """Newest first."""
    rows = _visible(viewer, wanted)
    if halt in HALTS:
        rows = rows.filter(**HALTS[halt])
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(rows.order_by("-pk")[: page + 1])
    shown = found[:page]
    return SuitePage(_lines(shown), shown[-1].pk if len(found) > page else None)


def read_live_suites(viewer: Viewer, *, at_most: int) -> list[SuiteLine]:
    """Open and closed suites, the most urgent first."""
    rows = _visible(viewer, SuiteFilter(states=(SuiteState.OPEN, SuiteState.CLOSED)))
    return _lines(list(rows.order_by("-priority", "-pk")[:at_most]))


def read_pace(suite_id: int) -> Pace:
    moment = now()
    parameters = {
        "suite_id": suite_id,
        "max_events": _PACE_EVENTS,
        "since": moment - PACE_WINDOW,
    }
    row = fetch_one("suite/pace", _PaceRow, parameters)
    if not row.ends or row.oldest is None:
        return Pace(None)
    # As long as the events that were read reach back, whether time or their number cut them.
    return Pace(row.ends / max((moment - row.oldest).total_seconds(), 1.0))


@dataclass(frozen=True, slots=True)
class _PaceRow:
    ends: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Held:
    """What one manager holds of a suite."""

    manager_id: int
    held: int
    running: int


def read_held(suite_id: int) -> dict[int, Held]:
    """By manager, of those that are engaged with the suite now."""
    return {row.manager_id: row for row in fetch("suite/held", Held, {"suite_id": suite_id})}


def read_hosts(suite: TaskSuite) -> list[Host]:
    """Live engagements first, then the newest of the past."""
    rows = SuiteAssignment.objects.filter(suite_id=suite.pk).select_related(
        "manager", "manager__runner"
    )
    live = list(rows.filter(released_at__isnull=True).order_by("pk")[:MAX_HOSTS])
    past = list(rows.filter(released_at__isnull=False).order_by("-pk")[: MAX_HOSTS - len(live)])
    held = read_held(suite.pk)
    return [
        *(_host(row, held.get(row.manager_id)) for row in live),
        *(_host(row, None) for row in past),
    ]


def _host(engagement: SuiteAssignment, held: Held | None) -> Host:
    return Host(engagement, 0, 0) if held is None else Host(engagement, held.held, held.running)


def read_preparation_failures(suite: TaskSuite) -> list[PreparationFailure]:
    """What keeps hosts from being tried again."""
    rows = PreparationFailure.objects.filter(suite_id=suite.pk, forgiven_at__isnull=True)
    return list(rows.select_related("manager__runner").order_by("-pk")[:20])


def _visible(viewer: Viewer, wanted: SuiteFilter) -> "QuerySet[TaskSuite]":
    if viewer.member_id is not None:
        return list_suites(User(pk=viewer.member_id), wanted)
    rows = TaskSuite.objects.select_related("group", "creator")
    if wanted.group_name is not None:
        rows = rows.filter(group__name=wanted.group_name)
    if wanted.states is not None:
        rows = rows.filter(state__in=list(wanted.states))
    if wanted.name_contains is not None:
        rows = rows.named_like(wanted.name_contains)
    if wanted.labels is not None:
        rows = rows.labelled(wanted.labels)
    return rows


def _lines(suites: list[TaskSuite]) -> list[SuiteLine]:
    ids = [suite.pk for suite in suites]
    counts = suite_counts(ids)
    engaged = SuiteAssignment.objects.filter(suite_id__in=ids, released_at__isnull=True)
    hosts = Counter(dict(engaged.values_list("suite_id").annotate(n=Count("pk"))))
    return [SuiteLine(suite, counts[suite.pk], hosts[suite.pk]) for suite in suites]
