"""What the coordinator says to a node manager on `/ws/managers`: the RFC's seven messages and ours.

Answers carry the `request_id` of the request and come in any order, on the socket that asked.
Pushes are hints: what they say is repeated by the answer to the next heartbeat. Durations are
humantime texts. Decoded by the agent.
"""

from typing import Final, Literal, TypeAlias
from uuid import UUID

import msgspec

from mitosis_protocol.codec import JsonCodec
from mitosis_protocol.enums import (
    AssignmentState,
    DesiredState,
    PartitionPolicy,
    ReportAnswer,
)
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.manager_reports import Facts
from mitosis_protocol.specs import EnvHookSpec, TaskSpec, WorkerSchedule
from mitosis_protocol.suites import ResourceLimits


class ToManagerMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of everything the coordinator sends."""


class TaskSuiteSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A suite as its hosts need it."""

    uuid: UUID
    name: str
    description: str
    group_id: int
    tags: list[str]
    labels: list[str]
    priority: int
    worker_schedule: WorkerSchedule
    env_preparation: EnvHookSpec | None = None
    env_cleanup: EnvHookSpec | None = None
    group_name: str = ""
    limits: ResourceLimits | None = None
    on_partition: PartitionPolicy = PartitionPolicy.KEEP


class OfferedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task in the manager's hands from now on. `task_id` is the attempt, named in reports."""

    task_id: int
    task_uuid: UUID
    spec: TaskSpec
    priority: int
    attempt: int = 1
    timeout: str = "0s"
    upstream_task_uuid: UUID | None = None
    limits: ResourceLimits | None = None
    max_failures: int = 0  # 1: hold the answer to `start` before the command runs
    is_repeat: bool = False


class Engagement(msgspec.Struct, frozen=True, kw_only=True):
    """What the coordinator holds the manager to be engaged with."""

    assignment_id: int
    suite_uuid: UUID
    state: AssignmentState
    is_paused: bool = False
    release_reason: str | None = None


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the attempts in an inventory."""

    kept: list[int] = []
    adopted: list[int] = []  # were lost, are yours again
    cancel: list[int] = []  # stop them and report
    settled: list[int] = []  # their reports were taken: forget them
    revoked: list[int] = []  # not yours any more: stop them, report nothing
    missing: list[int] = []  # yours, but you did not name them: back in the queue


class Welcome(ToManagerMessage, frozen=True, tag="welcome"):
    """The answer to `hello`; the coordinator's word on the engagement counts."""

    request_id: int
    protocol_version: int
    manager_uuid: UUID
    session_epoch: int
    lease: str
    heartbeat_interval: str
    config_version: int
    desired_state: DesiredState
    engagement: Engagement | None = None
    suite_spec: TaskSuiteSpec | None = None
    held: Reconciliation = Reconciliation()


class HeartbeatAck(ToManagerMessage, frozen=True, tag="heartbeat_ack"):
    """The answer to a heartbeat that has a `request_id`; `lease` counts from its sending."""

    request_id: int
    lease: str
    config_version: int
    desired_state: DesiredState
    engagement: Engagement | None = None
    held: Reconciliation = Reconciliation()


class SuiteAssigned(ToManagerMessage, frozen=True, tag="suite_assigned"):
    suite_uuid: UUID
    suite_spec: TaskSuiteSpec
    assignment_id: int = 0


class TaskAvailable(ToManagerMessage, frozen=True, tag="task_available"):
    request_id: int
    task: OfferedTask | None = None


class TasksAvailable(ToManagerMessage, frozen=True, tag="tasks_available"):
    """`has_more`: the rest of the same claim follows in further frames of this `request_id`."""

    request_id: int
    tasks: list[OfferedTask] = []
    has_more: bool = False


class TaskReportAck(ToManagerMessage, frozen=True, tag="task_report_ack"):
    """`url` answers an upload. `action` is what was done: end, requeue or keep. Without success
    `code` and `message` say why.
    """

    request_id: int
    success: bool
    url: str | None = None
    answer: ReportAnswer | None = None
    action: str | None = None
    task_uuid: UUID | None = None  # the new task after Submit
    code: ErrorCode | None = None
    message: str | None = None


class ReportResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a batch, in the order of the request."""

    task_id: int
    answer: ReportAnswer
    action: str | None = None
    is_cancelled: bool = False  # after `start`: do not run the command


class ReportsAccepted(ToManagerMessage, frozen=True, tag="reports_accepted"):
    """Every answer but `retry_later` settles its line."""

    request_id: int
    results: list[ReportResult]


class ResolvedResource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A link, or why there is none; in the order of the request."""

    url: str | None = None
    size: int = 0
    error: ErrorCode | None = None
    sha256: str | None = None  # in hexadecimal, where whoever uploaded it announced one


class ResourcesResolved(ToManagerMessage, frozen=True, tag="resources_resolved"):
    """`has_more`: the rest follows in further frames of this `request_id`."""

    request_id: int
    resources: list[ResolvedResource]
    has_more: bool = False


class SuiteReportAck(ToManagerMessage, frozen=True, tag="suite_report_ack"):
    """The answer to `suite_completed` and `suite_failed` with a `request_id`."""

    request_id: int
    success: bool
    is_blocked: bool = False  # too many hosts failed alike: the suite waits for a person


class CancelTask(ToManagerMessage, frozen=True, tag="cancel_task"):
    task_uuid: UUID
    reason: str


class CancelSuite(ToManagerMessage, frozen=True, tag="cancel_suite"):
    suite_uuid: UUID
    reason: str
    cancel_running_tasks: bool


class SuiteDrained(ToManagerMessage, frozen=True, tag="suite_drained"):
    """The engagement has to end: finish what runs, clean up, answer `suite_completed`."""

    assignment_id: int
    suite_uuid: UUID
    reason: str


class Pause(ToManagerMessage, frozen=True, tag="pause"):
    """Start nothing more of this suite; what runs goes on."""

    suite_uuid: UUID


class Resume(ToManagerMessage, frozen=True, tag="resume"):
    suite_uuid: UUID


class ConfigUpdate(ToManagerMessage, frozen=True, tag="config_update"):
    lease_duration: str | None = None
    heartbeat_interval: str | None = None
    version: int = 0


class Shutdown(ToManagerMessage, frozen=True, tag="shutdown"):
    graceful: bool


class Error(ToManagerMessage, frozen=True, tag="error"):
    """A frame or request that was refused; the socket lives on."""

    code: ErrorCode
    message: str
    request_id: int | None = None
    is_retryable: bool = False
    extra: Facts = {}


class TasksReady(ToManagerMessage, frozen=True, tag="tasks_ready"):
    """A suite has new tasks: an idle manager engaged with it should fetch now."""

    suite_uuid: UUID
    kind: Literal["submitted", "resumed", "returned"] = "submitted"


class ReturnSurplus(ToManagerMessage, frozen=True, tag="return_surplus"):
    """Other hosts of the suite idle: keep `keep` attempts in all, return others if unstarted.

    `task_ids` are those that the idle hosts could run. Until the next `tasks_ready` nothing should
    be fetched beyond what the workers can run. Whoever ignores it loses nothing.
    """

    suite_uuid: UUID
    keep: int
    task_ids: list[int] = []


ToManager: TypeAlias = (
    Welcome
    | HeartbeatAck
    | SuiteAssigned
    | TaskAvailable
    | TasksAvailable
    | TaskReportAck
    | ReportsAccepted
    | ResourcesResolved
    | SuiteReportAck
    | CancelTask
    | CancelSuite
    | SuiteDrained
    | Pause
    | Resume
    | ConfigUpdate
    | Shutdown
    | Error
    | TasksReady
    | ReturnSurplus
)

TO_MANAGER: Final[JsonCodec[ToManager]] = JsonCodec(ToManager)
