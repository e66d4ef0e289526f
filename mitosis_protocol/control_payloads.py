"""The payloads of the control plane, one struct per message type, in the order of a session.

`task_id` is the attempt, as on every worker wire; it is also the envelope's `corr`. Unknown
members are ignored. Put into frames by mitosis_protocol.control_plane; see docs/control-plane.md.
"""

from typing import Annotated, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Meta

from mitosis_protocol import PROTOCOL_VERSION
from mitosis_protocol.control_codes import ControlCode, WorkerSessionState
from mitosis_protocol.enums import Outcome, TaskExecState, TaskResultMessage
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import KIB, MAX_INVENTORY, MAX_WORKERS
from mitosis_protocol.manager_reports import AttemptId, Facts, Inventory
from mitosis_protocol.node_calls import (
    Affinity,
    JsonObject,
    NodeType,
    ShortText,
    WorkerResource,
    check_object_size,
)
from mitosis_protocol.specs import Int32, TaskSpec
from mitosis_protocol.suites import ResourceLimits
from mitosis_protocol.to_manager import Reconciliation

Percent: TypeAlias = Annotated[float, Meta(ge=0, le=100)]
Seq: TypeAlias = Annotated[int, Meta(ge=1, le=2**31 - 1)]
MessageId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=128)]
Text: TypeAlias = Annotated[str, Meta(max_length=4096)]
Sha256: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
PackageName: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
]

DRAIN_MEM_PCT: Final = 90.0  # at or above: no more work for this worker, by default
DRAIN_DISK_PCT: Final = 95.0
MAX_RESOURCES_OF_WORKER: Final = 256  # in one register, or left behind by one result
MAX_PACKAGES_OF_WORKER: Final = 256
MAX_OUTPUTS_BYTES: Final = 64 * KIB
MAX_CHUNKS: Final = 64
# Twenty in one frame leave room for the rest of it.
MAX_CHUNK_BYTES: Final = 64 * KIB


class Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every payload."""


# --- both ways ------------------------------------------------------------------------------


class SessionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler tells a worker it has accepted."""

    session_id: str
    tenant: str
    lease_s: float  # from the sending of the last heartbeat that was answered
    heartbeat_interval_s: float
    drain_mem_pct: float = DRAIN_MEM_PCT  # at or above: no more work
    drain_disk_pct: float = DRAIN_DISK_PCT
    protocol_version: int = PROTOCOL_VERSION


class Ack(Payload, frozen=True, rename={"for_id": "for"}):
    """`for` is the id of the message taken. `duplicate`: it had been taken before.

    `session` answers a handshake, `held` a register or a heartbeat; `answer` says what became of
    a result: `ok`, `ok_duplicate` or `stale_attempt`.
    """

    for_id: MessageId
    duplicate: bool = False
    session: SessionTerms | None = None
    held: Reconciliation | None = None
    lease_s: float | None = None
    answer: ShortText | None = None


class Error(Payload, frozen=True, rename={"for_id": "for"}):
    """`for` is the id of the message complained about, if it could be read.

    From a worker, about a dispatch: E.CMD.UNKNOWN gives the task up for this worker,
    E.CMD.CONCURRENCY_VIOLATION and E.DISPATCH.UNAVAILABLE hand it back unstarted.
    """

    code: ControlCode
    message: Text = ""
    for_id: MessageId | None = None
    task_id: AttemptId | None = None
    expect: Seq | None = None  # of a sequence gap: the number to go on from
    retryable: bool = False


# --- worker to scheduler --------------------------------------------------------------------


class Handshake(Payload, frozen=True):
    """The first frame. Who speaks is known from the upgrade's token; this must agree with it.

    `process_id` is drawn at every start of the worker; `session_id` is the last one, if any.
    """

    worker_id: UUID
    process_id: UUID
    auth: Literal["token", "mtls"] = "token"
    protocol_version: Annotated[int, Meta(ge=0, le=2**31 - 1)] = PROTOCOL_VERSION
    session_id: Annotated[str, Meta(max_length=128)] | None = None
    software: Annotated[str, Meta(max_length=128)] = ""


class Concurrency(msgspec.Struct, frozen=True, kw_only=True):
    max_parallel: Annotated[int, Meta(ge=1, le=MAX_WORKERS)] = 1


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """`command` among the node types: plain command tasks are taken as well."""

    node_types: Annotated[list[NodeType], Meta(min_length=1, max_length=48)]
    concurrency: Concurrency = Concurrency()
    allow_packages: bool = False


class InstalledPackage(msgspec.Struct, frozen=True, kw_only=True):
    name: PackageName
    version: ShortText
    sha256: Sha256 | None = None


class HeldAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt in the worker's hands. `next_seq`: the first of its messages not acked yet."""

    task_id: AttemptId
    next_seq: Seq = 1


class Register(Payload, frozen=True):
    """What the worker can do and what it holds; only what is listed here is bound to it again.

    `is_clean`: a fresh process, nothing of a predecessor is still running.
    """

    capabilities: Capabilities
    packages: Annotated[list[InstalledPackage], Meta(max_length=MAX_PACKAGES_OF_WORKER)] = []
    inventory: Annotated[list[HeldAttempt], Meta(max_length=MAX_INVENTORY)] = []
    resources: Annotated[list[WorkerResource], Meta(max_length=MAX_RESOURCES_OF_WORKER)] = []
    is_clean: bool = False


class Heartbeat(Payload, frozen=True):
    """Renews the lease. `inflight` None says nothing about what the worker holds."""

    healthy: bool = True
    state: WorkerSessionState = WorkerSessionState.HEARTBEATING
    inflight: Inventory | None = None
    mem_pct: Percent | None = None
    disk_pct: Percent | None = None
    cpu_pct: Percent | None = None
    metrics: Facts = {}


class Chunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fragment of one channel: text, or base64 `data`. `stdout` and `stderr` need their offset
    in bytes, which is what makes a repetition harmless.
    """

    channel: Annotated[str, Meta(min_length=1, max_length=64)]
    text: str | None = None
    data: bytes | None = None
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    mime: ShortText | None = None
    metadata: Facts = {}

    def __post_init__(self) -> None:
        if (self.text is None) == (self.data is None):
            raise InvalidValue("a chunk has either text or data")
        if self.channel in {"stdout", "stderr"} and self.offset is None:
            raise InvalidValue(f"a chunk of {self.channel} needs its offset")
        if len(self.content) > MAX_CHUNK_BYTES:
            raise InvalidValue(f"a chunk has at most {MAX_CHUNK_BYTES} bytes")

    @property
    def content(self) -> bytes:
        return self.data if self.data is not None else (self.text or "").encode()


class Feedback(Payload, frozen=True):
    """News of a running attempt, numbered in one stream with its result."""

    task_id: AttemptId
    stage: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    exec_state: TaskExecState | None = None  # the stages of a command, as other workers tell them
    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Annotated[str, Meta(max_length=1024)] | None = None
    chunks: Annotated[list[Chunk], Meta(max_length=MAX_CHUNKS)] = []
    metrics: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=128)], float], Meta(max_length=64)
    ] = {}


class Result(Payload, frozen=True):
    """The last word on an attempt. `crashed`: the process died under it, which may be retried.

    `exit_status` is the raw wait status; `outputs` are a node's return values.
    """

    task_id: AttemptId
    status: Literal["succeeded", "failed", "timeout", "oom", "cancelled", "crashed"]
    exit_status: Int32 = 0
    msg: TaskResultMessage | None = None
    reason: Text = ""
    signal: Annotated[int, Meta(ge=1, le=64)] | None = None
    facts: Facts = {}
    outputs: JsonObject = {}
    artifacts: Annotated[list[WorkerResource], Meta(max_length=MAX_RESOURCES_OF_WORKER)] = []
    op_id: UUID | None = None  # makes a repetition harmless even after a restart of both ends

    def __post_init__(self) -> None:
        check_object_size("outputs", self.outputs, MAX_OUTPUTS_BYTES)
        if self.status == "crashed" and self.signal is None and not self.reason:
            raise InvalidValue("a crash names its signal or its reason")

    @property
    def outcome(self) -> Outcome | None:
        """None for a crash: what follows is the scheduler's to decide."""
        return None if self.status == "crashed" else Outcome.parse(self.status)


class PkgEvent(Payload, frozen=True):
    """How far an install or uninstall is; `installed`, `removed`, `failed` and `refused` end it."""

    op_id: UUID
    op: Literal["install", "uninstall"]
    name: PackageName
    version: ShortText
    status: Literal["started", "installed", "removed", "failed", "refused"]
    code: ControlCode | None = None
    message: Text = ""
    sha256: Sha256 | None = None  # of what was installed


# --- scheduler to worker --------------------------------------------------------------------


class Dispatch(Payload, frozen=True):
    """An attempt for this worker. `node_type` is `command` for a plain command task (`spec`).

    The middleware members are for traces; `resource_refs` are on this worker, or were.
    """

    task_id: AttemptId
    task_uuid: UUID
    attempt: int
    node_type: NodeType
    spec: TaskSpec
    parameters: JsonObject = {}
    timeout: str = "0s"
    priority: Int32 = 0
    upstream_task_uuid: UUID | None = None
    limits: ResourceLimits | None = None
    concurrency_key: ShortText | None = None
    affinity: Affinity | None = None
    resource_refs: list[WorkerResource] = []
    host_node_id: ShortText | None = None
    middleware_chain: list[ShortText] = []
    chain_index: int | None = None


class Drain(Payload, frozen=True):
    """Take nothing new, finish what is in hand. `is_final`: then close and leave.

    `is_lifted`: the reason is gone; work comes again.
    """

    reason: Text = ""
    is_final: bool = False
    is_lifted: bool = False


class CancelCommand(Payload, frozen=True):
    """Stop the attempt: `cancelled` wants a result, `revoked` silence."""

    task_id: AttemptId
    why: Literal["cancelled", "revoked"] = "cancelled"
    grace_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0


class PkgInstall(Payload, frozen=True):
    """Fetch `url`, check `sha256`, unpack. Refused by a worker without `--allow-packages`."""

    op_id: UUID
    name: PackageName
    version: ShortText
    url: str
    sha256: Sha256
    size_bytes: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class PkgUninstall(Payload, frozen=True):
    op_id: UUID
    name: PackageName
    version: ShortText
