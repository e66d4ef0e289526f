"""What a managed worker and its node agent say to each other, in MessagePack.

Requests go over the services `task_fetch`, `task_report` and `heartbeat` of one worker, answers
carry their `request_id`; `control` and `config` are published by the agent. Who speaks is known
from the service, never from the message. Used by nodeagent.ipc and nodeagent.worker.ipc_comm.
"""

from typing import Annotated, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Meta

from mitosis_protocol.enums import ArtifactContentType, Outcome, TaskResultMessage, TaskState
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.manager_reports import AttemptId, Facts, LocalId, RequestId, TaskEvent
from mitosis_protocol.specs import Int32, RemoteResource
from mitosis_protocol.suites import ResourceLimits
from mitosis_protocol.to_manager import OfferedTask, ResolvedResource


class IpcMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of everything on the wire between worker and agent."""


class WorkItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt for one worker. `limits` are the task's own or the suite's.

    `needs_permit`: ask with `start_task` before the command runs, because the attempt may be the
    last one its task is allowed.
    """

    task: OfferedTask
    limits: ResourceLimits | None = None
    needs_permit: bool = False


# Worker to agent, service task_fetch


class FetchTask(IpcMessage, frozen=True, tag="fetch_task"):
    """Answered when there is work; held open while there is none."""

    request_id: RequestId


# Worker to agent, service task_report


class StartTask(IpcMessage, frozen=True, tag="start_task"):
    request_id: RequestId
    attempt_id: AttemptId


class FinishTask(IpcMessage, frozen=True, tag="finish_task"):
    """The last word on an attempt; answered once it is safe on disk.

    `exit_status` is the raw wait status, `facts` what was measured. With `wants_next` the answer
    may bring attempts along: the next one, which spares a busy worker every second round trip, and
    while its tasks are quick one ahead, which it begins without waiting for the next answer.
    `is_patient`: it has begun one, and looks for the answer when that ends; nobody need wake it.
    """

    request_id: RequestId
    attempt_id: AttemptId
    exit_status: Int32
    wants_next: bool = False
    is_patient: bool = False
    msg: TaskResultMessage | None = None
    outcome: Outcome | None = None
    facts: Facts = {}


class CrashTask(IpcMessage, frozen=True, tag="crash_task"):
    """The command was ended by a signal that was not ours; the agent decides what follows."""

    request_id: RequestId
    attempt_id: AttemptId
    signal: Annotated[int, Meta(ge=1, le=64)]
    reason: str
    facts: Facts = {}


class DropTask(IpcMessage, frozen=True, tag="drop_task"):
    """Not run to its end, and nothing is to be reported: revoked, or the worker leaves."""

    request_id: RequestId
    attempt_id: AttemptId
    has_started: bool


class RequestUpload(IpcMessage, frozen=True, tag="request_upload"):
    request_id: RequestId
    attempt_id: AttemptId
    content_type: ArtifactContentType
    content_length: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class SubmitFollowUp(IpcMessage, frozen=True, tag="submit_follow_up"):
    """A downstream task, as the JSON its upstream wrote."""

    request_id: RequestId
    attempt_id: AttemptId
    request: bytes


class ResolveResources(IpcMessage, frozen=True, tag="resolve_resources"):
    request_id: RequestId
    attempt_id: AttemptId
    resources: list[RemoteResource]


class ReadTask(IpcMessage, frozen=True, tag="read_task"):
    """The state of another task, for `watch`."""

    request_id: RequestId
    attempt_id: AttemptId
    task_uuid: UUID


class NoteEvents(IpcMessage, frozen=True, tag="note_events"):
    """Stages, progress and output of a running attempt; best effort."""

    request_id: RequestId
    events: list[TaskEvent]


# Worker to agent, service heartbeat


class Ready(IpcMessage, frozen=True, tag="ready"):
    """First word of a worker; `trouble` says which limits it cannot enforce, if any."""

    request_id: RequestId
    pid: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    trouble: str | None = None


class Heartbeat(IpcMessage, frozen=True, tag="heartbeat"):
    request_id: RequestId
    attempt_id: AttemptId | None = None


FromWorker: TypeAlias = (
    FetchTask
    | StartTask
    | FinishTask
    | CrashTask
    | DropTask
    | RequestUpload
    | SubmitFollowUp
    | ResolveResources
    | ReadTask
    | NoteEvents
    | Ready
    | Heartbeat
)

# Agent to worker, answers


class FetchReply(IpcMessage, frozen=True, tag="fetch_reply"):
    """Without an item: ask again, or leave if `is_over`."""

    request_id: RequestId
    item: WorkItem | None = None
    is_over: bool = False


class Done(IpcMessage, frozen=True, tag="done"):
    """`next_items` only where they were wanted; without any the worker fetches as ever."""

    request_id: RequestId
    next_items: list[WorkItem] = []


class StartReply(IpcMessage, frozen=True, tag="start_reply"):
    request_id: RequestId
    may_run: bool


class UploadReply(IpcMessage, frozen=True, tag="upload_reply"):
    request_id: RequestId
    url: str


class ResolveReply(IpcMessage, frozen=True, tag="resolve_reply"):
    request_id: RequestId
    resources: list[ResolvedResource]


class ReadReply(IpcMessage, frozen=True, tag="read_reply"):
    request_id: RequestId
    state: TaskState | None = None


class Refused(IpcMessage, frozen=True, tag="refused"):
    """`is_gone`: the attempt is not this worker's (any more)."""

    request_id: RequestId
    code: ErrorCode
    message: str
    is_retryable: bool = False
    is_gone: bool = False


ToWorker: TypeAlias = (
    FetchReply | Done | StartReply | UploadReply | ResolveReply | ReadReply | Refused
)

# Agent to workers, topic control; `worker` None means all of them


class Shutdown(IpcMessage, frozen=True, tag="shutdown"):
    """Graceful: after the task in hand."""

    graceful: bool
    worker: LocalId | None = None


class CancelTask(IpcMessage, frozen=True, tag="cancel_task"):
    """`cancelled` wants a report, `revoked` silence."""

    attempt_id: AttemptId
    why: Literal["cancelled", "revoked"] = "cancelled"


class Pause(IpcMessage, frozen=True, tag="pause"):
    """Ask for no more work."""


class Resume(IpcMessage, frozen=True, tag="resume"):
    pass


Control: TypeAlias = Shutdown | CancelTask | Pause | Resume

# Agent to workers, topic config


class WorkerSettings(IpcMessage, frozen=True, tag="worker_settings"):
    """What may change while a worker runs."""

    log_bytes_per_s: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 64 * 1024
    heartbeat_interval_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    cancel_grace_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0


# Beyond this a payload goes through a file of the worker's; a full piece of output fits.
MAX_INLINE_BYTES: Final = 1 << 17
