"""Take tasks in: one, or a batch whose items succeed and fail on their own.

The caller has authorised the group (active, Write) and the suite. `prepare` runs first in the same
transaction, not for a repeated request: reopening the suite belongs there. Synchronous: a batch is
few statements on Django's connection.
"""

from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

import msgspec

from core.errors import DomainError, InvalidInput, LimitExceeded
from mitosis_protocol.limits import MAX_BULK_TASKS
from tasks import store
from tasks.models import ActiveTask, ArchivedTask
from tasks.new_task import Dependency, NewTask, encode_rows, link_members, row_of
from tasks.rows import TaskRef
from tasks.services.graph import Plan, plan_links, store_edges
from tasks.services.idempotency import Idempotency, once


class Target(msgspec.Struct, frozen=True, order=True):
    """Where tasks go; ordered, so that every batch takes its groups in the same order."""

    group_id: int
    suite_id: int | None = None


class BatchItem(msgspec.Struct, frozen=True):
    """One task of a batch, or the reason why it was refused before it got here."""

    target: Target | None
    task: NewTask | None
    refusal: str = ""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Why an item was not taken; `msg` as existing clients print it."""

    msg: str


class Taken(msgspec.Struct, frozen=True, tag=True):
    uuid: UUID
    number: int


ItemAnswer = Taken | Refused


def submit_task(
    *,
    target: Target,
    creator_id: int,
    task: NewTask,
    idempotency: Idempotency | None = None,
    prepare: Callable[[], None] | None = None,
) -> TaskRef:
    """Take one task. Raises InvalidInput, Conflict (key reused), DatabaseUnavailable."""
    [ref] = submit_tasks(
        target=target,
        creator_id=creator_id,
        tasks=[task],
        idempotency=idempotency,
        prepare=prepare,
    )
    return ref


def submit_tasks(
    *,
    target: Target,
    creator_id: int,
    tasks: Sequence[NewTask],
    idempotency: Idempotency | None = None,
    prepare: Callable[[], None] | None = None,
) -> list[TaskRef]:
    """Take all of them or none; `depends_on` may name rows of `tasks` by index."""
    _check_count(len(tasks))
    return once(
        idempotency,
        list[TaskRef],
        lambda: _insert(target, creator_id, tasks),
        prepare=prepare,
    )


def submit_batch(
    *,
    creator_id: int,
    items: Sequence[BatchItem],
    idempotency: Idempotency | None = None,
    prepare: Callable[[], None] | None = None,
) -> list[ItemAnswer]:
    """Take what can be taken; one answer per item, in order. Items cannot name each other."""
    _check_count(len(items))
    return once(
        idempotency,
        list[ItemAnswer],
        lambda: _insert_each(creator_id, items),
        prepare=prepare,
    )


def _check_count(count: int) -> None:
    if not count:
        raise InvalidInput("no tasks given")
    if count > MAX_BULK_TASKS:
        raise LimitExceeded(f"{count} tasks in one request, at most {MAX_BULK_TASKS} are allowed")


def _insert(target: Target, creator_id: int, tasks: Sequence[NewTask]) -> list[TaskRef]:
    lot = _Lot(target)
    for place, task in enumerate(tasks):
        lot.add(place, task)
    lot.plan()
    return lot.write(creator_id)


def _insert_each(creator_id: int, items: Sequence[BatchItem]) -> list[ItemAnswer]:
    answers: list[ItemAnswer] = [Refused(item.refusal) for item in items]
    lots: dict[Target, _Lot] = {}
    unknown = _unknown_upstream(items)
    for place, item in enumerate(items):
        if item.target is None or item.task is None:
            continue
        lot = lots.setdefault(item.target, _Lot(item.target))
        try:
            _refuse_unmet(item, unknown)
            lot.add(place, item.task)
        except DomainError as error:
            answers[place] = Refused(error.msg)
    # Upstream rows of all groups first, then the groups' counters, both ascending: whoever
    # submits takes its locks in this order.
    in_order = sorted(lots.values(), key=lambda lot: lot.lock_order)
    for lot in in_order:
        lot.plan()
    for lot in in_order:
        for place, ref in zip(lot.places, lot.write(creator_id), strict=True):
            answers[place] = Taken(ref.uuid, ref.number)
    return answers


class _Lot:
    """The tasks of one submission that go to the same group and suite."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.places: list[int] = []
        self._rows: list[dict[str, object]] = []
        self._depends_on: list[tuple[Dependency, ...]] = []
        self._plan = Plan([], [], [])

    @property
    def lock_order(self) -> tuple[int, int]:
        return self._target.group_id, self._target.suite_id or 0

    def add(self, place: int, task: NewTask) -> None:
        self._rows.append(row_of(task, uuid4()))
        self._depends_on.append(task.depends_on)
        self.places.append(place)

    def plan(self) -> None:
        self._plan = plan_links(
            self._depends_on,
            ids=None,
            group_id=self._target.group_id,
            suite_id=self._target.suite_id,
        )

    def write(self, creator_id: int) -> list[TaskRef]:
        if not self._rows:
            return []
        for row, links in zip(self._rows, self._plan.links, strict=True):
            row.update(link_members(links))
        refs = store.INSERT_TASKS.fetch_sync(
            {
                "rows": encode_rows(self._rows),
                "group_id": self._target.group_id,
                "creator_id": creator_id,
                "suite_id": self._target.suite_id,
            }
        )
        store_edges(self._plan)
        return refs


def _refuse_unmet(item: BatchItem, unknown: set[tuple[Target, UUID]]) -> None:
    for dependency in () if item.task is None else item.task.depends_on:
        if isinstance(dependency.upstream, int):
            raise InvalidInput("tasks of a batch cannot name each other by row")
        if item.target is not None and (item.target, dependency.upstream) in unknown:
            raise InvalidInput(
                f"depends on task {dependency.upstream}, which is not in this group and suite"
            )


def _unknown_upstream(items: Sequence[BatchItem]) -> set[tuple[Target, UUID]]:
    """Upstream tasks that are not there. One that is cannot vanish: it moves to the archive."""
    named = {
        (item.target, dependency.upstream)
        for item in items
        if item.target is not None and item.task is not None
        for dependency in item.task.depends_on
        if isinstance(dependency.upstream, UUID)
    }
    if not named:
        return set()
    uuids = {uuid for _, uuid in named}
    known: set[tuple[Target, UUID]] = set()
    # In this order: a task that moves between the two looks is found by the second.
    for model in (ActiveTask, ArchivedTask):
        rows = model.objects.filter(uuid__in=uuids).values_list("group_id", "suite_id", "uuid")
        known.update((Target(group_id, suite_id), uuid) for group_id, suite_id, uuid in rows)
    return named - known
