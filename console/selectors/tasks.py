"""The list of tasks: active and archived as one, newest first, a bounded stretch at a time."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from console.selectors.names import Names, names_of
from console.selectors.statements import fetch_one
from console.viewer import Viewer
from mitosis_protocol.enums import Outcome, TaskPhase
from suites.models import TaskSuite
from tasks.models import ActiveTask, ArchivedTask
from tasks.selectors import Task

PAGE: Final = 100
MAX_LOOKED_AT: Final = 5000  # rows per page when a filter passes few of them
NEWEST: Final = 2**62
_HELD: Final = frozenset({TaskPhase.LEASED, TaskPhase.RUNNING, TaskPhase.FINISHING})
_OUTCOME_BASE: Final = 100  # as in sql/tasks: outcomes follow the phases

STATES: Final[dict[str, tuple[TaskPhase | Outcome, ...]]] = {
    "waiting": (TaskPhase.PENDING, TaskPhase.READY),
    "running": (TaskPhase.LEASED, TaskPhase.RUNNING, TaskPhase.FINISHING),
    "succeeded": (Outcome.SUCCEEDED,),
    "failed": (Outcome.FAILED, Outcome.TIMEOUT, Outcome.OOM, Outcome.UPSTREAM_FAILED),
    "cancelled": (Outcome.CANCELLED,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskListFilter:
    """All conditions hold together; None asks for nothing."""

    state: str | None = None  # a key of STATES
    group_id: int | None = None
    suite_id: int | None = None
    runner_id: int | None = None
    label: str | None = None

    @property
    def places(self) -> tuple[TaskPhase | Outcome, ...] | None:
        return None if self.state is None else STATES[self.state]

    @property
    def is_selective(self) -> bool:
        """Whether rows of the stretch may fail to match."""
        return bool(self.state or self.label or self.runner_id)


@dataclass(frozen=True, slots=True)
class TaskPage:
    """`older` is where the next page begins, None at the end; it may be empty before that."""

    tasks: list[Task]
    names: Names
    older: int | None


@dataclass(frozen=True, slots=True)
class _Stretch:
    ids: list[int]
    looked_at: int
    oldest: int | None


def read_task_page(viewer: Viewer, wanted: TaskListFilter, *, before: int = NEWEST) -> TaskPage:
    group_ids = _places_to_look(viewer, wanted)
    if group_ids == []:
        return TaskPage([], names_of(), None)
    limit = MAX_LOOKED_AT if wanted.is_selective else PAGE + 1
    codes = None if wanted.places is None else [_code(place) for place in wanted.places]
    parameters = {
        "group_ids": group_ids,
        "suite_id": wanted.suite_id,
        "runner_id": wanted.runner_id,
        "label": wanted.label,
        "places": codes,
        "before": before,
        "max_rows": limit,
        "max_active": limit if _wants(wanted, TaskPhase) else 0,
        "max_archived": limit if _wants(wanted, Outcome) else 0,
        "max_matches": PAGE + 1,
    }
    stretch = fetch_one(f"tasks/{_source(wanted, group_ids)}", _Stretch, parameters)
    tasks = _load(stretch.ids[:PAGE])
    return TaskPage(tasks, _names(tasks), _older(stretch, limit))


def _places_to_look(viewer: Viewer, wanted: TaskListFilter) -> list[int] | None:
    """Groups; None: all of them. A group or suite that is not the viewer's is no place at all."""
    visible = viewer.group_ids()
    named = [wanted.group_id]
    if wanted.suite_id is not None:
        rows = TaskSuite.objects.filter(pk=wanted.suite_id)
        named.append(rows.values_list("group_id", flat=True).first() or 0)
    asked = {group_id for group_id in named if group_id is not None}
    if not asked:
        return visible
    [first, *others] = asked
    return [first] if not others and (visible is None or first in visible) else []


def _code(place: TaskPhase | Outcome) -> int:
    return place.code + (_OUTCOME_BASE if isinstance(place, Outcome) else 0)


def _wants(wanted: TaskListFilter, kind: type[TaskPhase] | type[Outcome]) -> bool:
    return wanted.places is None or any(isinstance(place, kind) for place in wanted.places)


def _source(wanted: TaskListFilter, group_ids: Collection[int] | None) -> str:
    if wanted.places is not None and _HELD.issuperset(wanted.places):
        return "held"
    if wanted.suite_id is not None:
        return "suite"
    return "all" if group_ids is None else "groups"


def _older(stretch: _Stretch, limit: int) -> int | None:
    if len(stretch.ids) > PAGE:
        return stretch.ids[PAGE - 1]
    return stretch.oldest if stretch.looked_at >= limit else None


def _load(ids: list[int]) -> list[Task]:
    found: dict[int, Task] = {row.pk: row for row in ActiveTask.objects.filter(pk__in=ids)}
    # Second, and it wins: what was active a moment ago has ended since.
    found |= {row.pk: row for row in ArchivedTask.objects.filter(pk__in=ids)}
    return [found[pk] for pk in ids if pk in found]


def _names(tasks: list[Task]) -> Names:
    return names_of(
        groups={task.group_id for task in tasks},
        suites={task.suite_id for task in tasks if task.suite_id is not None},
        runners={task.runner_id for task in tasks if task.runner_id is not None},
    )
