"""Why a suite or a task waits, per runner: gathers the facts in few statements, has them judged.

Called by the API and the console. What the caller may not know of (managers of other groups, suites
they work for) is left out or unnamed. Never empty: where nobody could run it, that is the answer.
"""

from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import msgspec
from django.db import connection

from accounts.models import Group, User
from core.clock import now
from core.pg import load_sql
from mitosis_protocol.enums import (
    AssignmentState,
    ConsentState,
    DesiredState,
    ManagerState,
    Role,
    RunnerKind,
    SelectionType,
    TaskPhase,
)
from runners.models import Runner
from suites.models import TaskSuite
from suites.selectors import suite_counts
from tasks.facts import EngagementFacts, Need, Obstacle, RunnerFacts
from tasks.models import ActiveTask, TaskDependency
from tasks.selectors import Task
from tasks.verdicts import Verdict, judge_all, no_runners, smallest_change
from tasks.waiting import SuiteFacts, TaskFacts, UpstreamFacts, suite_obstacles, task_obstacles

_RUNNERS: Final = load_sql("tasks", "suite/explain_runners")
_QUEUE: Final = load_sql("tasks", "suite/explain_queue")
MAX_RUNNERS: Final = 2000  # judged; more would be a page nobody reads


@dataclass(frozen=True, slots=True)
class Explanation:
    """`about` concerns the thing itself, `verdicts` each runner, the nearest to running first."""

    about: list[Obstacle]
    verdicts: list[Verdict]
    changes: list[str]

    @property
    def can_run(self) -> bool:
        return not self.about and any(one.is_able for one in self.verdicts)

    @property
    def summary(self) -> str:
        """One sentence for people."""
        if self.about:
            return "; ".join(one.text for one in self.about)
        able = [one for one in self.verdicts if one.is_able]
        if able:
            return f"nothing stands in the way on {len(able)} of {len(self.verdicts)} runners"
        return "; ".join(one.text for one in self.verdicts[0].obstacles)


def explain_suite(*, user: User, suite: TaskSuite) -> Explanation:
    """Why the suite's tasks wait."""
    facts, demands = _suite_facts(suite)
    need = replace(_suite_need(suite), demands=demands)
    return _explain(suite_obstacles(facts), _runners(user, suite.group_id, suite.pk), need)


def explain_task(*, user: User, task: Task) -> Explanation:
    """Why the task waits; one that runs or has ended says so."""
    about = task_obstacles(_task_facts(task))
    if not isinstance(task, ActiveTask) or task.runner_id is not None:
        return Explanation(about, [], smallest_change(about, []))
    if task.suite_id is None:
        need = Need(group_name=_group_name(task.group_id), is_suite=False)
        return _explain(about, _runners(user, task.group_id, None), _of_task(need, task))
    suite = TaskSuite.objects.select_related("group").get(pk=task.suite_id)
    facts, _ = _suite_facts(suite)
    # Whether anything else waits is no matter of this task.
    hurdles = [one for one in suite_obstacles(facts) if one.code in _OF_EVERY_TASK]
    need = _of_task(_suite_need(suite), task)
    return _explain([*hurdles, *about], _runners(user, suite.group_id, suite.pk), need)


_OF_EVERY_TASK: Final = {"suite_cancelled", "suite_blocked", "suite_paused", "at_max_running"}


def _explain(about: list[Obstacle], runners: list[RunnerFacts], need: Need) -> Explanation:
    if not runners:
        about = [*about, no_runners(need)]
    verdicts = judge_all(runners, need)
    return Explanation(about, verdicts, smallest_change(about, verdicts))


def _suite_need(suite: TaskSuite) -> Need:
    return Need(
        group_name=suite.group.name,
        is_suite=True,
        tags=frozenset(suite.tags),
        auto_match=suite.auto_match,
        priority=suite.priority,
    )


def _of_task(need: Need, task: ActiveTask) -> Need:
    return replace(
        need,
        demands=[frozenset(task.tags)],
        pinned_id=task.pinned_runner_id,
        excluded_ids=frozenset(task.excluded_runner_ids),
    )


def _suite_facts(suite: TaskSuite) -> tuple[SuiteFacts, list[frozenset[str]]]:
    with connection.cursor() as cursor:
        cursor.execute(_QUEUE, {"suite_id": suite.pk})
        has_ready, next_at, held, demands = cursor.fetchone()
    facts = SuiteFacts(
        uuid=suite.uuid,
        state=suite.state,
        is_paused=suite.paused_at is not None,
        blocked_reason=suite.blocked_reason,
        cancel_reason=suite.cancel_reason,
        pending=suite_counts([suite.pk])[suite.pk].pending,
        held=held,
        has_ready=has_ready,
        next_at=next_at,
        max_running=suite.max_running,
    )
    tags = msgspec.json.decode(demands, type=list[frozenset[str]])
    return facts, tags


def _task_facts(task: Task) -> TaskFacts:
    if not isinstance(task, ActiveTask):
        return TaskFacts(uuid=task.uuid, outcome=task.outcome, reason=task.reason)
    is_later = task.runner_id is None and task.not_before > now()
    return TaskFacts(
        uuid=task.uuid,
        phase=task.state,
        runner_uuid=_runner_uuid(task.runner_id),
        is_cancelling=task.cancel_requested_at is not None,
        not_before=task.not_before if is_later else None,
        upstream=_upstream(task) if task.state is TaskPhase.PENDING else (),
        key_holder=_key_holder(task),
    )


def _upstream(task: ActiveTask) -> list[UpstreamFacts]:
    named = TaskDependency.objects.filter(task_id=task.pk).values("upstream_id")
    rows = ActiveTask.objects.filter(pk__in=named).order_by("pk").only("uuid", "state")
    return [UpstreamFacts(uuid=row.uuid, phase=row.state) for row in rows]


def _key_holder(task: ActiveTask) -> UUID | None:
    if task.concurrency_key is None or task.runner_id is not None:
        return None
    rows = ActiveTask.objects.filter(
        group_id=task.group_id, concurrency_key=task.concurrency_key, runner_id__isnull=False
    )
    return rows.values_list("uuid", flat=True).first()


def _runner_uuid(runner_id: int | None) -> UUID | None:
    if runner_id is None:
        return None
    return Runner.objects.values_list("uuid", flat=True).get(pk=runner_id)


def _group_name(group_id: int) -> str:
    return Group.objects.values_list("name", flat=True).get(pk=group_id)


def _runners(user: User, group_id: int, suite_id: int | None) -> list[RunnerFacts]:
    """Managers for a suite, workers for a group's own tasks."""
    is_suite = suite_id is not None
    kinds = [RunnerKind.MANAGER] if is_suite else [RunnerKind.INDEPENDENT, RunnerKind.DIRECT]
    parameters = {
        "user_id": user.pk,
        "group_id": group_id,
        "suite_id": suite_id,
        "kinds": [kind.code for kind in kinds],
        "max_rows": MAX_RUNNERS,
    }
    with connection.cursor() as cursor:
        cursor.execute(_RUNNERS, parameters)
        return [_facts(_Row(*row)) for row in cursor.fetchall()]


class _Row(msgspec.Struct, frozen=True):
    """The columns of suite/explain_runners.sql, in order."""

    id: int
    uuid: UUID
    kind: int
    tags: list[str]
    role: int | None
    consent: int | None
    desired: int
    wish_reason: str
    probe_after: Any
    is_connected: bool
    is_alive: bool
    last_seen: Any
    state: int | None
    is_ours: bool | None
    assignment_state: int | None
    lease_until: Any
    suite_uuid: UUID | None
    suite_priority: int | None
    selection: int | None
    is_removed: bool
    preparation_failure: str | None
    is_busy: bool


def _facts(row: _Row) -> RunnerFacts:
    is_picked = row.selection is not None and not row.is_removed
    is_by_hand = row.selection == SelectionType.USER_SPECIFIED.code
    return RunnerFacts(
        id=row.id,
        uuid=row.uuid,
        kind=RunnerKind.from_code(row.kind),
        tags=frozenset(row.tags),
        role=None if row.role is None else Role.from_code(row.role),
        consent=None if row.consent is None else ConsentState.from_code(row.consent),
        desired=DesiredState.from_code(row.desired),
        wish_reason=row.wish_reason,
        probe_after=row.probe_after,
        is_connected=row.is_connected,
        is_alive=row.is_alive,
        last_seen=row.last_seen,
        state=ManagerState.IDLE if row.state is None else ManagerState.from_code(row.state),
        engagement=_engagement(row),
        is_chosen=is_picked and is_by_hand,
        is_removed=row.is_removed,
        is_matched=is_picked,
        preparation_failure=row.preparation_failure,
        is_busy=row.is_busy,
    )


def _engagement(row: _Row) -> EngagementFacts | None:
    if row.assignment_state is None:
        return None
    return EngagementFacts(
        is_ours=bool(row.is_ours),
        state=AssignmentState.from_code(row.assignment_state),
        lease_until=row.lease_until,
        suite_uuid=row.suite_uuid,
        priority=row.suite_priority or 0,
    )
