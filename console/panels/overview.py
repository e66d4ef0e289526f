"""The overview: numbers that lead to their lists, live suites, fresh failures, the last hour."""

from datetime import timedelta
from typing import Final

from console.panels.topics import Panel, Shown, Topic, part
from console.selectors.failures import FailureFilter, read_failures
from console.selectors.overview import read_fleet, read_queue
from console.selectors.suites import read_live_suites
from console.selectors.throughput import per_minute, read_minutes
from core.clock import now

SUITES_SHOWN: Final = 12
FAILURES_SHOWN: Final = 8
_WINDOW: Final = FailureFilter(window=timedelta(hours=24))


def build_overview(topic: Topic) -> Shown:
    viewer = topic.viewer
    numbers = {"queue": read_queue(viewer), "fleet": read_fleet(viewer)}
    failures = read_failures(viewer, _WINDOW, max_rows=FAILURES_SHOWN)
    lines = read_live_suites(viewer, at_most=SUITES_SHOWN)
    return Shown(
        {
            "numbers": part("overview_numbers", numbers),
            "suites": part("suite_rows", {"lines": lines, "empty": "No suite is open."}),
            "failures": part("failure_rows", {"looked": failures, "failures": failures.failures}),
        }
    )


def build_throughput(topic: Topic) -> Shown:
    minutes = read_minutes(topic.viewer)
    chart = {
        "at": [int(one.at.timestamp()) for one in minutes],
        "ended": [one.ended for one in minutes],
        "failed": [one.failed for one in minutes],
    }
    context = {"rate": per_minute(minutes, now()), "hour": sum(one.ended for one in minutes)}
    return Shown({"throughput": part("throughput", context)}, {"throughput": chart})


OVERVIEW: Final = Panel(build_overview, every_s=4.0)
THROUGHPUT: Final = Panel(build_throughput, every_s=10.0)
