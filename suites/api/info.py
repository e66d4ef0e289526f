"""A suite as the API shows it. Any number of suites costs the same few queries."""

from collections.abc import Collection, Iterable
from datetime import datetime
from uuid import UUID

from managers.models import SuiteAssignment, SuiteManager
from mitosis_protocol.timestamps import format_rfc3339
from suites.models import TaskSuite
from suites.selectors import SuiteCounts, suite_counts


def suite_infos(rows: Iterable[TaskSuite]) -> list[dict[str, object]]:
    """SuiteInfo of each; one more query for all counts."""
    suites = list(rows)
    counts = suite_counts([suite.pk for suite in suites])
    return [_info(suite, counts[suite.pk]) for suite in suites]


def suite_answer(suite: TaskSuite) -> dict[str, object]:
    """One suite with its plan and its managers."""
    [info] = suite_infos([suite])
    return {
        **info,
        "description": suite.description,
        "worker_schedule": suite.worker_schedule,
        "env_preparation": suite.env_preparation,
        "env_cleanup": suite.env_cleanup,
        "limits": suite.limits,
        "retry": suite.retry,
        "max_running": suite.max_running,
        "max_failures": suite.max_failures,
        "failure_rate": suite.failure_rate,
        "settle_seconds": suite.settle_seconds,
        "linger_seconds": suite.linger_seconds,
        "auto_match": suite.auto_match,
        "on_partition": suite.on_partition.value,
        "generation": suite.generation,
        "paused_at": _moment(suite.paused_at),
        "blocked_at": _moment(suite.blocked_at),
        "closed_at": _moment(suite.closed_at),
        "cancelled_at": _moment(suite.cancelled_at),
        "cancel_reason": suite.cancel_reason,
        "assigned_managers": texts(assigned_managers(suite.pk)),
        "active_managers": texts(active_managers(suite.pk)),
    }


def assigned_managers(suite_id: int) -> list[UUID]:
    """Eligible managers, in the order they became so."""
    rows = SuiteManager.objects.filter(
        suite_id=suite_id, removed_at__isnull=True, manager__runner__revoked_at__isnull=True
    )
    return list(rows.order_by("pk").values_list("manager__runner__uuid", flat=True))


def active_managers(suite_id: int) -> list[UUID]:
    """Managers engaged now."""
    rows = SuiteAssignment.objects.filter(suite_id=suite_id, released_at__isnull=True)
    return list(rows.order_by("pk").values_list("manager__runner__uuid", flat=True))


def texts(uuids: Collection[UUID]) -> list[str]:
    return [str(one) for one in uuids]


def state_answer(suite: TaskSuite, *, changed: bool) -> dict[str, object]:
    """What the life cycle routes answer; the suite is read again after the change."""
    suite.refresh_from_db(fields=["state", "paused_at"])
    return {
        "uuid": str(suite.uuid),
        "suite_state": suite.state.value,
        "is_paused": suite.paused_at is not None,
        "changed": changed,
    }


def _info(suite: TaskSuite, counts: SuiteCounts) -> dict[str, object]:
    return {
        "uuid": str(suite.uuid),
        "name": suite.name,
        "group_name": suite.group.name,
        "creator_username": suite.creator.username,
        "tags": suite.tags,
        "labels": suite.labels,
        "state": suite.state.value,
        "priority": suite.priority,
        "total_tasks": counts.total,
        "pending_tasks": counts.pending,
        "succeeded_tasks": counts.succeeded,
        "failed_tasks": counts.failed,
        "cancelled_tasks": counts.cancelled,
        "is_paused": suite.paused_at is not None,
        "blocked_reason": suite.blocked_reason,
        "last_task_submitted_at": _moment(suite.last_task_submitted_at),
        "created_at": format_rfc3339(suite.created_at),
        "updated_at": format_rfc3339(suite.updated_at),
        "completed_at": _moment(suite.completed_at),
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else format_rfc3339(moment)
