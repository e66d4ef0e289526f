"""One suite: where it stands, failures by cause, its hosts and their phases, who ran what when.

Four panels, because their facts change at different times: while tasks end one after the other,
only the progress is new every two seconds, and nothing else is read or rendered for it.
"""

from collections import defaultdict
from datetime import timedelta
from typing import Final
from uuid import UUID

from console.panels.offers import suite_offers
from console.panels.topics import Panel, Shown, Topic, part
from console.selectors.failures import Failure, FailureFilter, Looked, read_failures
from console.selectors.stamps import suite_failure_stamps, suite_host_stamps, suite_stamps
from console.selectors.suites import (
    read_held,
    read_hosts,
    read_pace,
    read_preparation_failures,
)
from console.selectors.timeline import Attempt, Timeline, read_timeline
from console.viewer import EVERYTHING
from core.errors import NotFound
from suites.models import TaskSuite
from suites.selectors import find_suite, suite_counts

FAILURES_READ: Final = 200
_EVER: Final = timedelta(days=3650)
_LANE_HEIGHT: Final = 14
_MIN_WIDTH: Final = 1.5  # of 1000: what can still be seen


def build_suite(topic: Topic) -> Shown:
    """The caller has checked that the viewer may see this suite."""
    suite = _suite(topic)
    counts = suite_counts([suite.pk])[suite.pk]
    pace = read_pace(suite.pk)
    held = sum(one.held for one in read_held(suite.pk).values())
    ended = counts.succeeded + counts.failed + counts.cancelled
    progress = {
        "suite": suite,
        "counts": counts,
        "held": held,
        "waiting": max(0, counts.pending - held),
        "percent": 100 * ended / counts.total if counts.total else None,
        "per_minute": None if pace.per_second is None else pace.per_second * 60,
        "eta": pace.eta(counts.pending),
        "offers": suite_offers(suite, failed=counts.failed),
    }
    return Shown({"progress": part("suite_progress", progress)})


def build_suite_failures(topic: Topic) -> Shown:
    return Shown({"failures": part("suite_failures", _failures(_suite(topic)))})


def build_suite_hosts(topic: Topic) -> Shown:
    return Shown({"hosts": part("suite_hosts", {"hosts": read_hosts(_suite(topic))})})


def build_timeline(topic: Topic) -> Shown:
    timeline = read_timeline(_suite(topic).pk)
    context = {} if timeline is None else _drawing(timeline)
    return Shown({"timeline": part("suite_timeline", {"timeline": timeline, **context})})


def _suite(topic: Topic) -> TaskSuite:
    suite = find_suite(UUID(topic.target))
    if suite is None:
        raise NotFound(f"Suite {topic.target} not found")
    return suite


def _failures(suite: TaskSuite) -> dict[str, object]:
    wanted = FailureFilter(window=_EVER, suite_id=suite.pk)
    looked = read_failures(EVERYTHING, wanted, max_rows=FAILURES_READ)
    return {
        "suite": suite,
        "groups": _by_cause(looked),
        "looked": looked,
        "preparations": read_preparation_failures(suite),
    }


def _by_cause(looked: Looked) -> list[tuple[str, list[Failure], int]]:
    """Cause, its newest failures, how many there are; the most frequent first."""
    found: dict[str, list[Failure]] = defaultdict(list)
    for one in looked.failures:
        found[one.cause].append(one)
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    return [(cause, members[:3], len(members)) for cause, members in ordered[:10]]


def _drawing(timeline: Timeline) -> dict[str, object]:
    """Numbers for the template: it cannot calculate."""
    lanes = [
        {
            "lane": lane,
            "y": place * _LANE_HEIGHT,
            "bars": [_bar(timeline, one) for one in lane.attempts],
        }
        for place, lane in enumerate(timeline.lanes)
    ]
    return {"lanes": lanes, "height": max(1, len(lanes)) * _LANE_HEIGHT}


def _bar(timeline: Timeline, one: Attempt) -> dict[str, object]:
    x = timeline.share(one.began_at)
    width = timeline.share(one.ended_at or timeline.ended_at) - x
    return {"attempt": one, "x": x, "width": max(_MIN_WIDTH, round(width, 1))}


SUITE: Final = Panel(build_suite, every_s=2.0, stamps=suite_stamps)
SUITE_FAILURES: Final = Panel(build_suite_failures, every_s=2.0, stamps=suite_failure_stamps)
SUITE_HOSTS: Final = Panel(build_suite_hosts, every_s=4.0, stamps=suite_host_stamps)
TIMELINE: Final = Panel(build_timeline, every_s=10.0, stamps=suite_stamps)


def topics_of(suite_uuid: UUID) -> list[Topic]:
    """Everything that the page of one suite shows."""
    kinds = ("suite", "suite_failures", "suite_hosts", "timeline")
    return [Topic(kind, str(suite_uuid)) for kind in kinds]
