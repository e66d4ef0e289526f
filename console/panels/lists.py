"""The lists: suites, tasks, managers, failures, as their addresses ask for them."""

from typing import Final

from django.http import QueryDict
from django.utils.safestring import SafeString

from console.filters import (
    cursor_text,
    failure_query,
    manager_query,
    suite_query,
    task_query,
)
from console.panels.topics import Panel, Shown, Topic, part
from console.selectors.failures import read_failures
from console.selectors.managers import read_manager_page
from console.selectors.suites import read_suite_page
from console.selectors.tasks import read_task_page

FAILURES_SHOWN: Final = 100


def build_suites(topic: Topic) -> Shown:
    query = QueryDict(topic.target)
    asked = suite_query(query)
    page = read_suite_page(topic.viewer, asked.wanted, halt=asked.halt, before=asked.before)
    rows = part("suite_rows", {"lines": page.lines, "empty": "No suite matches."})
    return Shown({"rows": rows, "pager": _pager(query, page.older)})


def build_tasks(topic: Topic) -> Shown:
    query = QueryDict(topic.target)
    wanted, before = task_query(query)
    page = read_task_page(topic.viewer, wanted, before=before)
    return Shown({"rows": part("task_rows", {"page": page}), "pager": _pager(query, page.older)})


def build_managers(topic: Topic) -> Shown:
    query = QueryDict(topic.target)
    wanted, before = manager_query(query)
    page = read_manager_page(topic.viewer, wanted, before=before)
    rows = part("manager_rows", {"lines": page.lines})
    return Shown({"rows": rows, "pager": _pager(query, page.older)})


def build_failures(topic: Topic) -> Shown:
    query = QueryDict(topic.target)
    wanted, before = failure_query(query)
    looked = read_failures(topic.viewer, wanted, before=before)
    shown = looked.failures[:FAILURES_SHOWN]
    has_more = looked.is_cut or len(looked.failures) > FAILURES_SHOWN
    # Where nothing matched, the stretch itself has an end to go on from; the blame says so.
    older = cursor_text(shown[-1].ended_at, shown[-1].id) if has_more and shown else None
    blame = {
        "looked": looked,
        "causes": looked.by("cause"),
        "hosts": looked.by("runner_id"),
        "suites": looked.by("suite_id"),
        "kept": _without(query, "before", "cause", "runner", "suite"),
        "query": query,
    }
    return Shown(
        {
            "blame": part("blame", blame),
            "rows": part("failure_rows", {"looked": looked, "failures": shown}),
            "pager": _pager(query, older),
        }
    )


def _pager(query: QueryDict, older: object) -> SafeString:
    return part(
        "pager",
        {
            "older": None if older is None else _with(query, before=str(older)),
            "newest": _without(query, "before") if "before" in query else None,
        },
    )


def _with(query: QueryDict, **changes: str) -> str:
    changed = query.copy()
    for name, value in changes.items():
        changed[name] = value
    return changed.urlencode()


def _without(query: QueryDict, *names: str) -> str:
    changed = query.copy()
    for name in names:
        changed.pop(name, None)
    return changed.urlencode()


SUITES: Final = Panel(build_suites, every_s=4.0)
TASKS: Final = Panel(build_tasks, every_s=4.0)
MANAGERS: Final = Panel(build_managers, every_s=5.0)
FAILURES: Final = Panel(build_failures, every_s=10.0)
