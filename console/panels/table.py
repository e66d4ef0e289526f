"""All panels by the kind of their topic."""

from collections.abc import Mapping
from typing import Final

from console.panels import lists, manager, overview, suite, task
from console.panels.topics import Panel, Shown, Topic

PANELS: Final[Mapping[str, Panel]] = {
    "overview": overview.OVERVIEW,
    "throughput": overview.THROUGHPUT,
    "suites": lists.SUITES,
    "tasks": lists.TASKS,
    "managers": lists.MANAGERS,
    "failures": lists.FAILURES,
    "suite": suite.SUITE,
    "suite_failures": suite.SUITE_FAILURES,
    "suite_hosts": suite.SUITE_HOSTS,
    "timeline": suite.TIMELINE,
    "manager": manager.MANAGER,
    "task": task.TASK,
}


def build(topic: Topic) -> Shown:
    return PANELS[topic.kind].build(topic)
