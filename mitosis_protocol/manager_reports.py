"""The parts of a manager's reports: operations on an attempt, lines of a batch, news of a run.

Used by mitosis_protocol.from_manager, the agent's outbox and tasks.services.manager_reports.
"""

from typing import Annotated, Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Meta

from mitosis_protocol.enums import (
    ArtifactContentType,
    Outcome,
    TaskExecState,
    TaskResultMessage,
)
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_INVENTORY
from mitosis_protocol.specs import Int32, TaskSpec

RequestId: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
AttemptId: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
AssignmentId: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
LocalId: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Inventory: TypeAlias = Annotated[list[AttemptId], Meta(max_length=MAX_INVENTORY)]
# Flat on purpose: what is stored as jsonb must not be nested by a stranger.
Scalar: TypeAlias = str | int | float | bool | None
Facts: TypeAlias = Annotated[dict[str, Scalar], Meta(max_length=256)]


class FinishOp(msgspec.Struct, frozen=True):
    exit_code: Int32


class CancelOp(msgspec.Struct, frozen=True):
    reason: str = ""


class CommitOp(msgspec.Struct, frozen=True):
    """`exit_status` is the raw wait status."""

    exit_status: Int32
    msg: TaskResultMessage | None = None
    outcome: Outcome | None = None
    op_id: UUID | None = None


class UploadOp(msgspec.Struct, frozen=True):
    """By content type, or by the RFC's path whose name says it (`result.tar.gz`)."""

    content_length: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    content_type: ArtifactContentType | None = None
    artifact_path: str | None = None

    def __post_init__(self) -> None:
        if (self.content_type is None) == (self.artifact_path is None):
            raise InvalidValue("an upload names its content_type or its artifact_path")


class SubmitOp(msgspec.Struct, frozen=True):
    """A task that waits for the one being finished."""

    group_name: str
    timeout: str
    task_spec: TaskSpec
    tags: list[str] = []
    labels: list[str] = []
    priority: Int32 = 0
    op_id: UUID | None = None


class ReportTaskOp(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={
        "finish": "Finish",
        "cancel": "Cancel",
        "commit": "Commit",
        "upload": "Upload",
        "submit": "Submit",
    },
):
    """Externally tagged: an object with exactly one member."""

    finish: FinishOp | None = None
    cancel: CancelOp | None = None
    commit: CommitOp | None = None
    upload: UploadOp | None = None
    submit: SubmitOp | None = None

    def __post_init__(self) -> None:
        members = (self.finish, self.cancel, self.commit, self.upload, self.submit)
        if sum(member is not None for member in members) != 1:
            raise InvalidValue("an operation is one of Finish, Cancel, Commit, Upload, Submit")


ReportKind: TypeAlias = Literal["start", "finish", "cancel", "commit", "failure", "abort"]


class TaskReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a batch. `op_id` makes its repetition harmless; drawn by the outbox."""

    task_id: AttemptId
    op: ReportKind
    op_id: UUID | None = None
    exit_status: Int32 = 0
    msg: TaskResultMessage | None = None
    outcome: Outcome | None = None
    reason: str = ""
    signal: Annotated[int, Meta(ge=1, le=64)] | None = None
    worker_local_id: LocalId | None = None
    result: Facts | None = None


class LogChunk(msgspec.Struct, frozen=True):
    """Output that begins at `offset`; `data` is base64 in JSON."""

    stream: Literal["stdout", "stderr"]
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    data: bytes


class TaskEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """News of a running attempt: its stage, feedback, or output."""

    task_id: AttemptId
    exec_state: TaskExecState | None = None
    progress: Facts | None = None
    log: LogChunk | None = None
