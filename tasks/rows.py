"""What goes into and comes out of the statements of tasks.store: frozen values, no behaviour.

Field order is column order. Services and the dispatcher pass these on; JSON columns stay text,
because whoever sends them on a wire would only encode them again.
"""

from datetime import datetime
from enum import Enum
from uuid import UUID

import msgspec

from mitosis_protocol.enums import ArtifactContentType, Outcome, TaskResultMessage


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One fetch. `claim_id` makes its repetition harmless; `session_epoch` None skips that check.

    `is_exclusive`: an independent worker of the existing wire, which holds one task at a time and
    sends no Start.
    """

    runner_id: int
    claim_id: UUID
    want: int = 1
    session_epoch: int | None = None
    is_exclusive: bool = False


class ClaimVerdict(Enum):
    """Why a claim row carries no task; `again` is handled by the dispatcher."""

    TASK = "task"
    NOTHING = "nothing"
    AGAIN = "again"
    INACTIVE = "inactive"
    SUPERSEDED = "superseded"
    LEASE_LOST = "lease_lost"
    REVOKED = "revoked"


class ClaimRow(msgspec.Struct, frozen=True):
    ord: int
    verdict: str
    attempt_id: int | None
    task_id: int | None
    uuid: UUID | None
    attempt: int | None
    group_id: int | None
    suite_id: int | None
    timeout_s: int | None
    spec: str | None
    upstream_task_uuid: UUID | None
    limits: str | None
    middleware: str | None
    priority: int | None
    max_failures: int | None
    is_repeat: bool | None
    concurrency_key: str | None
    affinity: str | None
    resource_refs: str | None


class ClaimedTask(msgspec.Struct, frozen=True):
    """A task in a runner's hands. `attempt_id` is the `id` on every worker wire."""

    attempt_id: int
    task_id: int
    uuid: UUID
    attempt: int
    group_id: int
    suite_id: int | None
    timeout_s: int
    spec: msgspec.Raw
    upstream_task_uuid: UUID | None
    limits: msgspec.Raw | None
    middleware: msgspec.Raw | None
    max_failures: int
    is_repeat: bool
    priority: int = 0
    concurrency_key: str | None = None
    affinity: msgspec.Raw | None = None
    resource_refs: msgspec.Raw | None = None


class SettleOp(Enum):
    """The five things a report can do with an attempt; the values are the SQL's."""

    COMMIT = 0
    ABORT = 1
    RELEASE = 2
    FAILURE = 3
    LOST = 4


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One report about one attempt; `op_id` makes its repetition harmless."""

    attempt_id: int
    runner_id: int
    op: SettleOp
    op_id: UUID
    outcome: Outcome | None = None
    exit_status: int | None = None  # raw wait status
    msg: TaskResultMessage | None = None
    reason: str | None = None
    result: str | None = None  # JSON
    charge: bool = False
    exclude: bool = False
    death_limit: int | None = None
    worker_id: int | None = None


class SettleRow(msgspec.Struct, frozen=True):
    """`answer`: end, requeue or keep when it was done; else busy or the reason it was refused."""

    ord: int
    answer: str
    task_id: int | None
    uuid: UUID | None
    suite_id: int | None
    outcome: int | None
    failures: int | None
    is_excluded: bool | None


class StartRow(msgspec.Struct, frozen=True):
    ord: int
    answer: str
    is_cancelled: bool


class AnswerRow(msgspec.Struct, frozen=True):
    ord: int
    answer: str


class UploadRequest(msgspec.Struct, frozen=True):
    """An archive of an attempt, about to be uploaded by the runner that holds it."""

    attempt_id: int
    runner_id: int
    content_type: ArtifactContentType
    size: int


class UploadRow(msgspec.Struct, frozen=True):
    """`answer`: ok, or busy, absent, stale, inactive, quota; `is_there`: asked for before."""

    ord: int
    answer: str
    task_uuid: UUID | None
    attempt: int | None
    is_there: bool
    group_name: str | None


class InventoryRow(msgspec.Struct, frozen=True):
    runner_id: int
    attempt_id: int
    found: str


class TaskRef(msgspec.Struct, frozen=True):
    """A submitted task; `number` is `task_id` on the wire."""

    id: int
    uuid: UUID
    number: int


class DownstreamRow(msgspec.Struct, frozen=True):
    answer: str
    number: int | None


class Reserved(msgspec.Struct, frozen=True):
    first_number: int
    ids: list[int]


class Upstream(msgspec.Struct, frozen=True):
    """`outcome` None: it has not ended and is held until the transaction ends."""

    uuid: UUID
    id: int
    outcome: int | None


class IdRow(msgspec.Struct, frozen=True):
    id: int


class CountRow(msgspec.Struct, frozen=True):
    count: int


class EventRow(msgspec.Struct, frozen=True):
    id: int
    xid: str
    at: datetime
    kind: int
    state: int | None
    outcome: int | None
    seq: int | None
    attempt: int | None
    group_id: int | None
    suite_id: int | None
    task_id: int | None
    runner_id: int | None
    data: str | None


class Horizon(msgspec.Struct, frozen=True):
    safe_xid: str
    next_xid: str


class TrimRow(msgspec.Struct, frozen=True):
    """How many events a slice of the log lost, and the position of its last one."""

    trimmed: int
    xid: str
    id: int
    is_end: bool


class SuiteCounts(msgspec.Struct, frozen=True):
    suite_id: int
    total: int = 0
    pending: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
