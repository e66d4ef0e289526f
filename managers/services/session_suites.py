"""Telling managers about suites: what they were given, and that they have to leave.

`suite_messages` serves the socket (welcome, heartbeats, lost pushes); the `tell_*` functions are
for whoever decided, in the transaction of the decision: passes, configuration, shutdowns.
"""

import uuid
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
from django.db import connection

from core.pg import get_pool, load_sql
from core.push import broadcast_on_commit, to_manager_on_commit
from managers.models import SchedulerConfig, SuiteAssignment
from mitosis_protocol.durations import format_duration
from mitosis_protocol.enums import PartitionPolicy
from mitosis_protocol.specs import EnvHookSpec, WorkerSchedule
from mitosis_protocol.suites import ResourceLimits
from mitosis_protocol.to_manager import (
    ConfigUpdate,
    Shutdown,
    SuiteAssigned,
    SuiteDrained,
    TaskSuiteSpec,
)

_SUITES: Final = load_sql("managers", "session_suites")


async def suite_messages(assignment_ids: Collection[int]) -> dict[int, SuiteAssigned]:
    """`suite_assigned` by engagement."""
    rows = await get_pool().fetch(_SUITES, {"assignment_ids": sorted(assignment_ids)})
    return {row[0]: _message(row) for row in rows}


def tell_engaged(assignment_ids: Collection[int]) -> None:
    """After a scheduler pass: each manager hears what it was given."""
    with connection.cursor() as cursor:
        cursor.execute(_SUITES, {"assignment_ids": sorted(assignment_ids)})
        rows = cursor.fetchall()
    for row in rows:
        to_manager_on_commit(row[1], _message(row))


def tell_leaving(assignment_ids: Collection[int], *, reason: str) -> None:
    """Engagements that have to end: their managers drain, clean up and say so."""
    rows = SuiteAssignment.objects.filter(pk__in=assignment_ids).values_list(
        "pk", "suite__uuid", "manager__runner__uuid"
    )
    for assignment_id, suite_uuid, manager_uuid in rows:
        message = SuiteDrained(assignment_id=assignment_id, suite_uuid=suite_uuid, reason=reason)
        to_manager_on_commit(manager_uuid, message)


def tell_config(config: SchedulerConfig) -> None:
    """Every connected manager hears the new numbers."""
    message = ConfigUpdate(
        lease_duration=format_duration(config.lease_duration_s),
        heartbeat_interval=format_duration(config.heartbeat_s),
        version=config.version,
    )
    broadcast_on_commit(message)


def tell_shutdown(manager_uuid: uuid.UUID, *, graceful: bool) -> None:
    to_manager_on_commit(manager_uuid, Shutdown(graceful=graceful))


def _message(row: Sequence[Any]) -> SuiteAssigned:
    (assignment_id, _, suite_uuid, name, description, group_id, group_name, tags, labels) = row[:9]
    priority, schedule, preparation, cleanup, limits, on_partition = row[9:]
    spec = TaskSuiteSpec(
        uuid=suite_uuid,
        name=name,
        description=description,
        group_id=group_id,
        tags=tags,
        labels=labels,
        priority=priority,
        worker_schedule=msgspec.json.decode(schedule, type=WorkerSchedule),
        env_preparation=msgspec.json.decode(preparation or "null", type=EnvHookSpec | None),
        env_cleanup=msgspec.json.decode(cleanup or "null", type=EnvHookSpec | None),
        group_name=group_name,
        limits=msgspec.json.decode(limits or "null", type=ResourceLimits | None),
        on_partition=PartitionPolicy.from_code(on_partition),
    )
    return SuiteAssigned(suite_uuid=suite_uuid, suite_spec=spec, assignment_id=assignment_id)
