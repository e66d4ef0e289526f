"""The seam between a worker and whoever gives it work: WorkerComm and the values it carries.

Implemented by http_comm (independent workers) and ipc_comm (managed ones); the same loop runs
behind the control-plane WebSocket with another implementation. Every method raises the errors of
nodeagent.errors: CoordinatorUnavailable may be retried, WorkerRemoved ends the worker.
"""

from collections.abc import Collection
from typing import Protocol
from uuid import UUID

import msgspec
from typing_extensions import override

from mitosis_protocol.enums import (
    ArtifactContentType,
    Outcome,
    TaskExecState,
    TaskResultMessage,
    TaskState,
)
from mitosis_protocol.manager_reports import Facts
from mitosis_protocol.specs import RemoteResource, TaskSpec
from mitosis_protocol.suites import ResourceLimits


class TaskRef(msgspec.Struct, frozen=True, kw_only=True):
    """The name of one attempt: all that a report needs."""

    attempt_id: int  # the `id` of every report: the fence
    uuid: UUID


class TaskOffer(TaskRef, frozen=True, kw_only=True):
    """One attempt handed to this worker."""

    timeout_s: float
    spec: TaskSpec
    upstream_task_uuid: UUID | None = None
    attempt: int | None = None  # 1, 2, ...; unknown to existing coordinators
    live_logs: bool = False  # whether the coordinator takes output while the task runs
    log_bytes_per_s: int = 4 << 20  # of each stream; what is more lags and is whole in the std-log
    limits: ResourceLimits | None = None
    needs_permit: bool = False  # `permit` has to say yes before the command runs


class Finish(msgspec.Struct, frozen=True):
    """The command ended by itself, whatever its exit status."""


class Cancel(msgspec.Struct, frozen=True):
    """The command was stopped, or never started."""


class Upload(msgspec.Struct, frozen=True):
    """Ask for a URL to put an archive of exactly this many bytes."""

    content_type: ArtifactContentType
    content_length: int


class Submit(msgspec.Struct, frozen=True):
    """A follow-up task, as the JSON the command wrote; the coordinator validates it."""

    request: msgspec.Raw


class Commit(msgspec.Struct, frozen=True):
    """The last word on an attempt. `exit_status` is the raw wait status.

    `outcome` only where the status does not say it (out of memory); `facts` are what was measured.
    """

    exit_status: int
    msg: TaskResultMessage | None = None
    outcome: Outcome | None = None
    facts: Facts = {}


class Crash(msgspec.Struct, frozen=True):
    """Instead of Commit, for a comm that takes it: a signal that was not ours ended the command."""

    signal: int
    reason: str
    facts: Facts = {}


Report = Finish | Cancel | Upload | Submit | Commit | Crash


class HeartbeatReply(msgspec.Struct, frozen=True):
    """Attempts the coordinator wants stopped: by their user, or because they are not ours now."""

    cancel: frozenset[int] = frozenset()
    revoked: frozenset[int] = frozenset()


class RemoteLocation(msgspec.Struct, frozen=True):
    """Where a resource can be read without further authorisation, and how long it is."""

    url: str
    size: int

    @override
    def __repr__(self) -> str:
        # The URL is a credential.
        return f"RemoteLocation(size={self.size})"


class TaskSnapshot(msgspec.Struct, frozen=True):
    """What `watch` and a repeated Submit need to know about a task."""

    state: TaskState
    msg: TaskResultMessage | None
    is_committed: bool
    downstream_task_uuid: UUID | None


class LogChunk(msgspec.Struct, frozen=True):
    """Bytes of one output stream from `offset` on; may come twice when an answer was lost."""

    stream: str  # "stdout" or "stderr"
    offset: int
    data: bytes


class WorkerComm(Protocol):
    """What a worker asks of its coordinator or manager. One task is in hand at a time."""

    takes_crashes: bool  # else the signal is an ordinary result, as existing workers report it

    async def fetch(self) -> TaskOffer | None:
        """The next attempt, or None. Raises OfferUnreadable for one we cannot run."""
        ...

    async def report(self, task: TaskRef, report: Report) -> str | None:
        """Deliver one report; the URL for an Upload, else None. May be repeated.

        Raises TaskGone, QuotaExceeded (Upload) or ReportRefused.
        """
        ...

    async def permit(self, task: TaskRef) -> None:
        """Ask whether the command may run now. Raises TaskGone if not."""
        ...

    def note_state(self, task: TaskRef, state: TaskExecState) -> None:
        """Say how far an attempt is; best effort, never waits."""
        ...

    async def heartbeat(self, held: Collection[int]) -> HeartbeatReply:
        """Say that we live and which attempts we hold."""
        ...

    async def resolve_resource(self, task: TaskRef, file: RemoteResource) -> RemoteLocation:
        """A readable URL. Raises ResourceMissing or ResourceRefused."""
        ...

    async def read_task(self, uuid: UUID) -> TaskSnapshot:
        """The state of any task we may see. Raises ResourceMissing."""
        ...

    async def log_chunk(self, task: TaskRef, chunk: LogChunk) -> None:
        """Hand on output while the task runs. Raises ReportRefused if it is not wanted."""
        ...

    async def unregister(self) -> None:
        """Leave; gives back a task in hand. Never raises for a worker already forgotten."""
        ...

    async def close(self) -> None:
        """Release connections. Nothing may be called afterwards."""
        ...
