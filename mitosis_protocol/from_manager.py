"""What a node manager says to the coordinator on `/ws/managers`: the RFC's six messages and ours.

Decoded by websocket.inbound, built by the agent. Unknown members are ignored, members that are
ours have defaults, so a client of the RFC alone is understood. `task_id` is the attempt, as on
every worker wire. A `request_id` where the RFC has none asks for an answer.
"""

from typing import Annotated, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Meta

from mitosis_protocol import PROTOCOL_VERSION
from mitosis_protocol.codec import JsonCodec
from mitosis_protocol.enums import ManagerState
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_REPORTS_PER_FRAME, MAX_RESOURCES, MAX_TASKS_PER_FETCH
from mitosis_protocol.manager_reports import (
    AssignmentId,
    AttemptId,
    Count,
    Facts,
    Inventory,
    LocalId,
    ReportTaskOp,
    RequestId,
    TaskEvent,
    TaskReport,
)
from mitosis_protocol.specs import Int32, RemoteResource


class FromManagerMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of everything a manager sends."""


class ManagerMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The RFC's numbers; `families` holds the finer ones, one flat group per family."""

    active_workers: Count = 0
    total_tasks_completed: Count = 0
    total_tasks_failed: Count = 0
    current_suite_tasks_completed: Count = 0
    current_suite_tasks_failed: Count = 0
    uptime_seconds: Count = 0
    cpu_usage_percent: float = 0.0
    memory_usage_mb: Count = 0
    families: Annotated[dict[str, Facts], Meta(max_length=32)] = {}


class Hello(FromManagerMessage, frozen=True, tag="hello"):
    """First frame of our agents; a client of the RFC starts with a heartbeat instead.

    `inventory` is every attempt it holds, `suite_uuid` the suite its host is prepared for.
    `is_clean`: a fresh process whose predecessor's work was killed, so nothing is on its way.
    """

    request_id: RequestId
    process_id: UUID
    protocol_version: Annotated[int, Meta(ge=0, le=2**31 - 1)] = PROTOCOL_VERSION
    manager_uuid: UUID | None = None
    inventory: Inventory = []
    suite_uuid: UUID | None = None
    is_clean: bool = False


class Heartbeat(FromManagerMessage, frozen=True, tag="heartbeat"):
    """Renews the lease. `assignment_id` is the engagement the manager believes in; `inventory`
    None means that nothing is said about what it holds.
    """

    manager_uuid: UUID
    state: ManagerState
    metrics: ManagerMetrics
    request_id: RequestId | None = None
    assignment_id: AssignmentId | None = None
    inventory: Inventory | None = None
    config_version: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None


class FetchTask(FromManagerMessage, frozen=True, tag="fetch_task"):
    """One task for one worker."""

    request_id: RequestId
    worker_local_id: LocalId
    claim_id: UUID | None = None
    assignment_id: AssignmentId | None = None


class FetchTasks(FromManagerMessage, frozen=True, tag="fetch_tasks"):
    """Up to `max_tasks`; repeating a `claim_id` returns what that claim got."""

    request_id: RequestId
    max_tasks: Annotated[int, Meta(ge=1, le=MAX_TASKS_PER_FETCH)]
    claim_id: UUID | None = None
    assignment_id: AssignmentId | None = None


class ReportTask(FromManagerMessage, frozen=True, tag="report_task"):
    """One operation on one attempt; a bare `Commit` ends what `Finish` reported before."""

    request_id: RequestId
    task_id: AttemptId
    op: Literal["Finish", "Cancel", "Commit"] | ReportTaskOp


class ReportTasks(FromManagerMessage, frozen=True, tag="report_tasks"):
    """Answered line by line with `reports_accepted`."""

    request_id: RequestId
    reports: Annotated[list[TaskReport], Meta(min_length=1, max_length=MAX_REPORTS_PER_FRAME)]


class ReportFailure(FromManagerMessage, frozen=True, tag="report_failure"):
    """A worker died with the task in hand; the coordinator keeps the count."""

    task_uuid: UUID
    failure_count: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    error_message: str
    worker_local_id: LocalId
    request_id: RequestId | None = None
    task_id: AttemptId | None = None
    op_id: UUID | None = None
    signal: Annotated[int, Meta(ge=1, le=64)] | None = None


class AbortTask(FromManagerMessage, frozen=True, tag="abort_task"):
    """This manager gives the task up and is not given it again."""

    task_uuid: UUID
    reason: str
    request_id: RequestId | None = None
    task_id: AttemptId | None = None
    op_id: UUID | None = None


class ReturnTasks(FromManagerMessage, frozen=True, tag="return_tasks"):
    """Handed back unstarted, free of charge."""

    request_id: RequestId
    task_ids: Annotated[list[AttemptId], Meta(min_length=1, max_length=MAX_REPORTS_PER_FRAME)]


class TaskEvents(FromManagerMessage, frozen=True, tag="task_events"):
    """Best effort; answered with `reports_accepted` only if it has a `request_id`."""

    events: Annotated[list[TaskEvent], Meta(min_length=1, max_length=MAX_REPORTS_PER_FRAME)]
    request_id: RequestId | None = None


class ResolveResources(FromManagerMessage, frozen=True, tag="resolve_resources"):
    """Links to files for an attempt in hand, or for the hooks of the engagement."""

    request_id: RequestId
    resources: Annotated[list[RemoteResource], Meta(min_length=1, max_length=MAX_RESOURCES)]
    task_id: AttemptId | None = None
    assignment_id: AssignmentId | None = None

    def __post_init__(self) -> None:
        if (self.task_id is None) == (self.assignment_id is None):
            raise InvalidValue("resources are for a task_id or for an assignment_id")


class SuiteCompleted(FromManagerMessage, frozen=True, tag="suite_completed"):
    """The host is cleaned up and free again."""

    suite_uuid: UUID
    tasks_completed: Count
    tasks_failed: Count
    request_id: RequestId | None = None
    assignment_id: AssignmentId | None = None


class SuiteFailed(FromManagerMessage, frozen=True, tag="suite_failed"):
    """A hook failed. `trouble` says how; the engagement goes on to its cleanup."""

    suite_uuid: UUID
    phase: Literal["preparation", "cleanup"]
    exit_code: Int32 | None = None
    stderr_tail: str = ""
    trouble: Literal["command", "timeout", "network", "limits"] = "command"
    request_id: RequestId | None = None
    assignment_id: AssignmentId | None = None


FromManager: TypeAlias = (
    Hello
    | Heartbeat
    | FetchTask
    | FetchTasks
    | ReportTask
    | ReportTasks
    | ReportFailure
    | AbortTask
    | ReturnTasks
    | TaskEvents
    | ResolveResources
    | SuiteCompleted
    | SuiteFailed
)

FROM_MANAGER: Final[JsonCodec[FromManager]] = JsonCodec(FromManager)
