"""Bodies of the worker side, as existing workers write and read them.

Operations are externally tagged: `"Finish"`, or an object with one member that names the rest.
"""

import hashlib
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID, uuid4

import msgspec
from msgspec import Meta

from core.errors import InvalidInput
from mitosis_protocol.durations import format_duration, parse_duration
from mitosis_protocol.enums import ArtifactContentType, TaskResultMessage
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_INVENTORY
from mitosis_protocol.specs import Int32, Int64, TaskSpec
from tasks.new_task import NewTask
from tasks.rows import ClaimedTask

Size: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class UploadBody(msgspec.Struct, frozen=True):
    content_type: ArtifactContentType
    content_length: Size


class CommitBody(msgspec.Struct, frozen=True):
    """`exit_status` is the raw wait status."""

    exit_status: Int32
    msg: TaskResultMessage | None = None


class SubmitBody(msgspec.Struct, frozen=True):
    """A downstream task."""

    group_name: str
    tags: list[str]
    labels: list[str]
    timeout: str
    priority: Int32
    task_spec: TaskSpec

    def to_new_task(self) -> NewTask:
        """Raises InvalidInput for a timeout that is none."""
        try:
            timeout_s = parse_duration(self.timeout)
        except InvalidValue as error:
            raise InvalidInput(f"timeout: {error}") from error
        return NewTask(
            spec=self.task_spec,
            timeout_s=timeout_s,
            tags=self.tags,
            labels=self.labels,
            priority=self.priority,
        )


class OpWithBody(
    msgspec.Struct,
    frozen=True,
    rename={"upload": "Upload", "submit": "Submit", "commit": "Commit"},
):
    """Exactly one member."""

    upload: UploadBody | None = None
    submit: SubmitBody | None = None
    commit: CommitBody | None = None

    def __post_init__(self) -> None:
        if [self.upload, self.submit, self.commit].count(None) != 2:
            raise InvalidValue("an operation is exactly one of Upload, Submit, Commit")


class ReportBody(msgspec.Struct, frozen=True):
    """`id` is that of the fetched attempt."""

    id: Int64
    op: Literal["Finish", "Cancel"] | OpWithBody


class BeatBody(msgspec.Struct, frozen=True):
    """What our own workers add to a heartbeat: the attempts they hold."""

    held: Annotated[list[Int64], Meta(max_length=MAX_INVENTORY)] = []


class MetadataBeat(msgspec.Struct, frozen=True):
    """A beat of `POST /api/workers/heartbeat`."""

    worker_id: str
    metadata: dict[str, Any] = {}


class Offer(msgspec.Struct, frozen=True):
    """A fetched task. Existing workers ignore the last two."""

    id: int
    uuid: UUID
    timeout: str  # humantime here, seconds everywhere else
    upstream_task_uuid: UUID | None
    spec: msgspec.Raw
    attempt: int
    live_logs: bool


def offer_of(task: ClaimedTask) -> Offer:
    """The spec goes out as it was stored."""
    return Offer(
        id=task.attempt_id,
        uuid=task.uuid,
        timeout=format_duration(task.timeout_s),
        upstream_task_uuid=task.upstream_task_uuid,
        spec=task.spec,
        attempt=task.attempt,
        live_logs=True,
    )


def submission_id(attempt_id: int, key: str | None) -> UUID:
    """Becomes the new task's uuid. With a key a repetition finds it; without, each one is new.

    Existing workers send no key and may submit several tasks one after the other.
    """
    if key is None:
        return uuid4()
    digest = hashlib.sha256(f"mitosis:submit:{attempt_id}:{key}".encode()).digest()
    return UUID(bytes=digest[:16], version=4)  # clients check the version of a task's uuid
