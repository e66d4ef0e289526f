"""Run ended tasks of a suite again, as new tasks. Called by the suite API.

A task keeps the one outcome it ended with: its rerun is another task that carries `rerun_of`. Each
task is rerun once; if the rerun fails too, that one can be. Dependencies among the rerun tasks are
kept, others point at the newest run of the upstream task.
"""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import msgspec
from django.db import transaction

from accounts.actors import Actor
from accounts.models import User
from accounts.services.audit import record
from core.errors import InvalidInput
from core.faults import fault
from mitosis_protocol.enums import DependencyCondition, Outcome, SuiteState
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.limits import MAX_BULK_TASKS
from suites.models import TaskSuite
from suites.services.lifecycle import accept_submits
from tasks import store
from tasks.new_task import Dependency, lane_of
from tasks.rows_suites import RerunCandidate, RerunRef
from tasks.services.graph import plan_links, store_edges
from tasks.statements import array


class Reruns(msgspec.Struct, frozen=True):
    """The new tasks; `has_more`: there are more than one call takes."""

    tasks: list[RerunRef]
    has_more: bool


def rerun_tasks(
    *,
    actor: Actor,
    user: User,
    suite: TaskSuite,
    outcomes: Collection[Outcome],
    task_uuids: Collection[UUID] | None = None,
    max_tasks: int = MAX_BULK_TASKS,
) -> Reruns:
    """Reopens the suite if there is something to run. Raises InvalidInput for a cancelled one."""
    with transaction.atomic():
        _lock(suite)
        found = store.RERUN_CANDIDATES.fetch_sync(
            {
                "suite_id": suite.pk,
                "outcomes": array(sorted(one.code for one in outcomes)),
                "uuids": None if task_uuids is None else array(task_uuids),
                "max_tasks": max_tasks + 1,
            }
        )
        chosen = found[:max_tasks]
        if not chosen:
            return Reruns([], has_more=False)
        accept_submits([suite.pk])
        made = _insert(suite, user, chosen)
        fault("suite.rerun_before_commit")
        detail = {"count": len(made), "outcomes": sorted(one.value for one in outcomes)}
        record(actor=actor, action="suite.rerun", target=str(suite.uuid), detail=detail)
    return Reruns(made, has_more=len(found) > max_tasks)


def _lock(suite: TaskSuite) -> None:
    """The suite's row first, as everywhere; two reruns at once take turns."""
    locked = TaskSuite.objects.select_for_update(no_key=True).get(pk=suite.pk)
    if locked.state is SuiteState.CANCELLED:
        raise InvalidInput(
            f"suite_uuid: the suite {suite.uuid} is cancelled and takes no more tasks",
            code=ErrorCode.SUITE_CANCELLED,
        )


def _insert(suite: TaskSuite, user: User, chosen: Sequence[RerunCandidate]) -> list[RerunRef]:
    drawn = store.DRAW_IDS.fetch_sync({"count": len(chosen)})
    plan = plan_links(
        _dependencies(chosen),
        ids=[row.id for row in drawn],
        group_id=suite.group_id,
        suite_id=suite.pk,
    )
    made = store.RERUN.fetch_sync(
        {
            "old_ids": array(task.id for task in chosen),
            "new_ids": array(links.id for links in plan.links),
            "lanes": array(lane_of(task.tags, task.pinned_runner_id) for task in chosen),
            "waiting": array(links.waiting_on for links in plan.links),
            "dependents": array(links.dependents for links in plan.links),
            "group_id": suite.group_id,
            "creator_id": user.pk,
        }
    )
    store_edges(plan)
    return made


def _dependencies(chosen: Sequence[RerunCandidate]) -> list[tuple[Dependency, ...]]:
    """Per chosen task: other chosen ones by row, the rest by uuid."""
    row_of = {task.id: row for row, task in enumerate(chosen)}
    edges = store.RERUN_EDGES.fetch_sync({"task_ids": array(row_of)})
    # By upstream: a task and its own rerun may both have been named, and are one now.
    named: list[dict[UUID | int, Dependency]] = [{} for _ in chosen]
    for edge in edges:
        upstream = _upstream(edge.upstream_id, edge.upstream_uuid, row_of)
        condition = DependencyCondition.from_code(edge.condition)
        named[row_of[edge.task_id]].setdefault(upstream, Dependency(upstream, condition))
    return [tuple(found.values()) for found in named]


def _upstream(task_id: int, uuid: UUID, row_of: Mapping[int, int]) -> UUID | int:
    row = row_of.get(task_id)
    return uuid if row is None else row
