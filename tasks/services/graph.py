"""Dependencies of a submission: an order without cycles, ids in that order, upstream tasks held.

Called by tasks.services.submit and array, inside their transaction. Ids grow downstream, which is
what makes a cycle impossible to store and gives every lock one order.
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import msgspec

from core.errors import InvalidInput
from mitosis_protocol.enums import DependencyCondition, Outcome
from tasks import store
from tasks.new_task import Dependency, Links
from tasks.rows import Upstream
from tasks.statements import array

_FAILED = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.OOM, Outcome.UPSTREAM_FAILED})


class Edge(msgspec.Struct, frozen=True):
    task_id: int
    upstream_id: int
    condition: DependencyCondition


class Plan(msgspec.Struct, frozen=True):
    """Links per row, the edges to store, and the tasks that are doomed before they begin."""

    links: list[Links]
    edges: list[Edge]
    stillborn_ids: list[int]


def plan_links(
    depends_on: Sequence[tuple[Dependency, ...]],
    *,
    ids: Sequence[int] | None,
    group_id: int,
    suite_id: int | None,
) -> Plan:
    """Resolve the dependencies of all rows; `ids` are reserved ascending ones, if there are any.

    Raises InvalidInput for a cycle, a row or task that is not there, or a repeated upstream.
    """
    if not any(depends_on):
        row_ids: Sequence[int | None] = ids if ids is not None else [None] * len(depends_on)
        return Plan([Links(id) for id in row_ids], [], [])
    order = topological_order([_rows_named(deps) for deps in depends_on])
    drawn = list(ids) if ids is not None else _draw_ids(len(depends_on))
    id_of = dict(zip(order, drawn, strict=True))
    upstream = _hold_upstream(depends_on, group_id=group_id, suite_id=suite_id)
    return _Weaver(depends_on, id_of, upstream).weave()


def topological_order(upstream_rows: Sequence[Sequence[int]]) -> list[int]:
    """Rows so that every one comes after those it names, in row order where that is free."""
    count = len(upstream_rows)
    waiting = [0] * count
    downstream: list[list[int]] = [[] for _ in range(count)]
    for row, named in enumerate(upstream_rows):
        for other in named:
            if not 0 <= other < count:
                raise InvalidInput(f"row {row} depends on row {other}, which does not exist")
            waiting[row] += 1
            downstream[other].append(row)
    free = [row for row in range(count) if not waiting[row]]
    order: list[int] = []
    while free:
        row = heapq.heappop(free)
        order.append(row)
        for dependent in downstream[row]:
            waiting[dependent] -= 1
            if not waiting[dependent]:
                heapq.heappush(free, dependent)
    if len(order) < count:
        stuck = [row for row in range(count) if waiting[row]]
        shown = ", ".join(map(str, stuck[:10]))
        raise InvalidInput(f"the dependencies of these rows form a cycle: {shown}")
    return order


def is_met(condition: DependencyCondition, outcome: Outcome) -> bool:
    """Whether a task may start after an upstream that ended so; settle/tail.sql says the same."""
    if condition is DependencyCondition.ANY:
        return True
    if condition is DependencyCondition.OK:
        return outcome is Outcome.SUCCEEDED
    return outcome in _FAILED


def store_edges(plan: Plan) -> None:
    """Write the edges, then end the tasks whose upstream had already failed them."""
    if plan.edges:
        store.INSERT_EDGES.fetch_sync(
            {
                "task_ids": array(edge.task_id for edge in plan.edges),
                "upstream_ids": array(edge.upstream_id for edge in plan.edges),
                "conditions": array(edge.condition.code for edge in plan.edges),
            }
        )
    if plan.stillborn_ids:
        store.END_STILLBORN.fetch_sync({"task_ids": array(plan.stillborn_ids)})


class _Weaver:
    """Collects links and edges row by row."""

    def __init__(
        self,
        depends_on: Sequence[tuple[Dependency, ...]],
        id_of: dict[int, int],
        upstream: dict[UUID, Upstream],
    ) -> None:
        self._depends_on = depends_on
        self._id_of = id_of
        self._upstream = upstream
        self._waiting_on = [0] * len(depends_on)
        self._dependents: Counter[int] = Counter()
        self._edges: list[Edge] = []
        self._stillborn: list[int] = []

    def weave(self) -> Plan:
        for row, dependencies in enumerate(self._depends_on):
            if len({dependency.upstream for dependency in dependencies}) < len(dependencies):
                raise InvalidInput(f"row {row} names the same upstream task twice")
            for dependency in dependencies:
                self._tie(row, dependency)
        links = [
            Links(self._id_of[row], waiting, self._dependents[row])
            for row, waiting in enumerate(self._waiting_on)
        ]
        return Plan(links, self._edges, sorted(set(self._stillborn)))

    def _tie(self, row: int, dependency: Dependency) -> None:
        task_id = self._id_of[row]
        if isinstance(dependency.upstream, int):
            upstream_id = self._id_of[dependency.upstream]
            self._dependents[dependency.upstream] += 1
            self._waiting_on[row] += 1
        else:
            found = self._upstream.get(dependency.upstream)
            if found is None:
                raise InvalidInput(
                    f"row {row} depends on task {dependency.upstream}, which is not in this "
                    "group and suite"
                )
            upstream_id = found.id
            outcome = None if found.outcome is None else Outcome.from_code(found.outcome)
            if outcome is None:
                self._waiting_on[row] += 1
            elif not is_met(dependency.condition, outcome):
                self._waiting_on[row] += 1
                self._stillborn.append(task_id)
        self._edges.append(Edge(task_id, upstream_id, dependency.condition))


def _rows_named(dependencies: tuple[Dependency, ...]) -> list[int]:
    return [found.upstream for found in dependencies if isinstance(found.upstream, int)]


def _draw_ids(count: int) -> list[int]:
    return [row.id for row in store.DRAW_IDS.fetch_sync({"count": count})]


def _hold_upstream(
    depends_on: Sequence[tuple[Dependency, ...]], *, group_id: int, suite_id: int | None
) -> dict[UUID, Upstream]:
    """Existing upstream tasks by uuid. Those not ended stay so until the transaction ends."""
    counts = Counter(
        dependency.upstream
        for dependencies in depends_on
        for dependency in dependencies
        if isinstance(dependency.upstream, UUID)
    )
    if not counts:
        return {}
    scope = {"group_id": group_id, "suite_id": suite_id}
    edges = {"uuids": array(counts), "edges": array(counts.values())}
    held = store.HOLD_UPSTREAM.fetch_sync({**scope, **edges})
    found = {row.uuid: row for row in held}
    missing = counts.keys() - found.keys()
    if missing:
        ended = store.FIND_ENDED.fetch_sync({**scope, "uuids": array(missing)})
        found.update({row.uuid: row for row in ended})
    return found
