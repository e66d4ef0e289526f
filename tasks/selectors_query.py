"""Tasks by filter: the active table and the archive as one list, ordered by age.

Called by the query, cancel and artifact routes. A page is found by id alone over both tables
(both indexes give ids in order, so only rows up to its end are read) and then loaded, so that a
task which ends in between is neither lost nor shown twice.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Value

from accounts.models import User
from mitosis_protocol.enums import ArtifactContentType, TaskPhase, TaskState
from mitosis_protocol.number_filter import NumberFilter
from tasks.models import ActiveTask, ArchivedTask, Artifact
from tasks.selectors import Task

if TYPE_CHECKING:
    _Rows = QuerySet[Any]

MAX_INT64: Final = 2**63 - 1  # of LIMIT and OFFSET
# So many rows are fetched and sorted in less time than passing a million takes.
_GATHERED: Final = 50_000

_PHASES: Final = {
    TaskState.PENDING: (TaskPhase.PENDING,),
    TaskState.READY: (TaskPhase.READY,),
    TaskState.RUNNING: (TaskPhase.LEASED, TaskPhase.RUNNING),
}


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """All conditions hold together; None asks for nothing."""

    group_id: int
    creator_usernames: Collection[str] | None = None
    tags: Collection[str] | None = None
    labels: Collection[str] | None = None
    states: Collection[TaskState] | None = None
    exit_status: NumberFilter | None = None
    priority: NumberFilter | None = None
    reporter_uuid: UUID | None = None
    suite_id: int | None = None
    uuid_prefix: str | None = None
    number: int | None = None

    @property
    def is_about_ends(self) -> bool:
        """Whether only tasks that ended can match."""
        return self.exit_status is not None or self.reporter_uuid is not None


def count_tasks(wanted: TaskFilter) -> int:
    """How many tasks match; counted in one statement, so none is missed or counted twice."""
    active = _active(wanted).values_list("id", flat=True)
    return active.union(_archived(wanted).values_list("id", flat=True), all=True).count()


def list_tasks(wanted: TaskFilter, *, offset: int, limit: int) -> list[Task]:
    """One page, oldest first."""
    ids = list(page_of_ids(wanted, offset=offset, limit=limit))
    found: dict[int, Task] = {row.pk: row for row in ActiveTask.objects.filter(pk__in=ids)}
    # Second, and it wins: what was in neither page nor table a moment ago has ended since.
    found |= {row.pk: row for row in ArchivedTask.objects.filter(pk__in=ids)}
    return [found[pk] for pk in ids]


def page_of_ids(wanted: TaskFilter, *, offset: int, limit: int) -> "_Rows":
    """Each table gives at most what the page could need: without that it would be sorted whole."""
    end = min(offset + limit, MAX_INT64)
    archived = _by_age(_archived(wanted), wanted)
    if wanted.is_about_ends:
        return archived[offset:end]
    active = _by_age(_active(wanted), wanted)
    return active[:end].union(archived[:end], all=True).order_by("id")[offset:end]


def _by_age(rows: "_Rows", wanted: TaskFilter) -> "_Rows":
    """Ids in order. PostgreSQL takes words to be spread evenly over the ages and looks for them
    from the oldest task on, past all others when the wanted ones are young: so a word that few
    tasks have is looked up in its own index, and what that finds is sorted.
    """
    words = (*(wanted.labels or ()), *(wanted.tags or ()))
    if words and _expected(rows) <= _GATHERED:
        rows = rows.order_by(F("id") + Value(0))  # an order that no index has
    else:
        rows = rows.order_by("id")
    return rows.values_list("id", flat=True)


def _expected(rows: "_Rows") -> int:
    """How many rows PostgreSQL thinks that is, without looking at one."""
    plan = rows.explain(format="json")
    if not plan:
        return 0  # Django knows that nothing can match, and asks nobody
    [explained] = json.loads(plan)
    return int(explained["Plan"]["Plan Rows"])


def list_active(wanted: TaskFilter) -> "QuerySet[ActiveTask]":
    """The matching tasks that have not ended, for cancels in batches."""
    return _active(wanted)


def list_artifact_ids(
    wanted: TaskFilter,
    content_type: ArtifactContentType,
    *,
    limit: int,
    after: tuple[int, int] = (0, 0),
) -> list[tuple[int, int]]:
    """(task id, artifact id) of matching tasks' archives behind `after`, in that order."""
    task_id, artifact_id = after
    rows = (
        Artifact.objects.filter(group_id=wanted.group_id, content_type=content_type)
        .filter(Q(task_id__gt=task_id) | Q(task_id=task_id, pk__gt=artifact_id))
        .filter(
            Exists(_active(wanted).filter(pk=OuterRef("task_id")))
            | Exists(_archived(wanted).filter(pk=OuterRef("task_id")))
        )
    )
    return list(rows.order_by("task_id", "pk").values_list("task_id", "pk")[:limit])


def _active(wanted: TaskFilter) -> "QuerySet[ActiveTask]":
    rows = _common(ActiveTask.objects.all(), wanted)
    if wanted.is_about_ends:
        return rows.none()
    if wanted.states is None:
        return rows
    matches = Q(state__in=[phase for state in wanted.states for phase in _PHASES.get(state, ())])
    if TaskState.FINISHED in wanted.states:
        matches |= Q(state=TaskPhase.FINISHING, finish_cancelled=False)
    if TaskState.CANCELLED in wanted.states:
        matches |= Q(state=TaskPhase.FINISHING, finish_cancelled=True)
    return rows.filter(matches)


def _archived(wanted: TaskFilter) -> "QuerySet[ArchivedTask]":
    rows = _common(ArchivedTask.objects.all(), wanted)
    if wanted.states is not None:
        rows = rows.filter(state__in=list(wanted.states))
    if wanted.exit_status is not None:
        rows = rows.filter(exit_status__isnull=False)
        rows = _compared(rows, "exit_status", wanted.exit_status)
    if wanted.reporter_uuid is not None:
        rows = rows.filter(reporter_uuid=wanted.reporter_uuid)
    return rows


def _common(rows: "_Rows", wanted: TaskFilter) -> "_Rows":
    rows = rows.filter(group_id=wanted.group_id)
    if wanted.creator_usernames is not None:
        # By id: a join inside the union would keep the two indexes from being merged in order.
        users = User.objects.filter(username__in=sorted(wanted.creator_usernames))
        rows = rows.filter(creator_id__in=list(users.values_list("pk", flat=True)))
    if wanted.tags is not None:
        rows = rows.filter(tags__contains=sorted(wanted.tags))
    if wanted.labels is not None:
        rows = rows.filter(labels__contains=sorted(wanted.labels))
    if wanted.priority is not None:
        rows = _compared(rows, "priority", wanted.priority)
    if wanted.suite_id is not None:
        rows = rows.filter(suite_id=wanted.suite_id)
    if wanted.uuid_prefix is not None:
        rows = rows.filter(uuid__range=uuid_range(wanted.uuid_prefix))
    if wanted.number is not None:
        rows = rows.filter(number=wanted.number)
    return rows


def uuid_range(prefix: str) -> tuple[UUID, UUID]:
    """First and last uuid that begin so: a range, for the index on the column knows no texts."""
    digits = prefix.replace("-", "")
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def _compared(rows: "_Rows", column: str, wanted: NumberFilter) -> "_Rows":
    condition = {f"{column}__{wanted.lookup}": wanted.value}
    return rows.exclude(**condition) if wanted.is_negated else rows.filter(**condition)
