"""Everything that can happen to the node agent: the input of `AgentState.handle`.

Made by the shell (nodeagent.agent) from its socket, the IPC thread, the pool, hooks, the outbox,
timers and signals. Values only, so a list of events is a test. What each effect of
nodeagent.effects is answered with is said there.
"""

from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from mitosis_protocol.enums import TaskState
from mitosis_protocol.manager_reports import TaskReport
from mitosis_protocol.to_manager import ToManager
from nodeagent.failures import ExitReason
from nodeagent.ipc.server import (
    IpcEvent,
    OfferTaken,
    RequestToken,
    WorkerAsked,
    WorkerKey,
    WorkerParked,
    WorkerReady,
)

__all__ = [
    "Booted",
    "DebtOwed",
    "DiskNoted",
    "Event",
    "FlushDue",
    "FrameReceived",
    "HookDone",
    "HookPhase",
    "HostTroubled",
    "IpcEvent",
    "LinkLost",
    "LinkUp",
    "OfferTaken",
    "OwedCleanup",
    "RequestTimedOut",
    "RequestToken",
    "ResultRefused",
    "ResultStored",
    "ShutdownAsked",
    "SlotsPlanned",
    "SlotsRefused",
    "SlotsReleased",
    "SpawnFailed",
    "TaskRead",
    "Tick",
    "Withdrawn",
    "WorkerAsked",
    "WorkerExited",
    "WorkerKey",
    "WorkerParked",
    "WorkerReady",
    "WorkerSpawned",
]

HookPhase: TypeAlias = Literal["preparation", "cleanup"]


class OwedCleanup(msgspec.Struct, frozen=True):
    """A preparation of an earlier life whose cleanup never ran."""

    assignment_id: int
    suite_uuid: UUID


# --- life of the process


class Booted(msgspec.Struct, frozen=True):
    """The first event: what an earlier life left in the outbox and in the debt book."""

    results: tuple[TaskReport, ...] = ()
    debts: tuple[OwedCleanup, ...] = ()


class Tick(msgspec.Struct, frozen=True):
    """Time passes; every 0.25 s or so."""


class FlushDue(msgspec.Struct, frozen=True):
    """The time asked for by ScheduleFlush has come."""


class ShutdownAsked(msgspec.Struct, frozen=True):
    """SIGTERM, and the second one."""

    is_forced: bool = False


class HostTroubled(msgspec.Struct, frozen=True):
    """This host cannot run commands safely any more (a process that cannot be killed, ...)."""

    reason: str


class DiskNoted(msgspec.Struct, frozen=True):
    """Said when it changes. `trouble`: results could not be kept, so nothing new may start."""

    trouble: str = ""


# --- the coordinator


class LinkUp(msgspec.Struct, frozen=True):
    """A new socket is open; answered with `hello`. It is usable after the `welcome`."""

    manager_uuid: UUID


class LinkLost(msgspec.Struct, frozen=True):
    """No answer to anything sent before will come."""

    reason: str = ""


class FrameReceived(msgspec.Struct, frozen=True):
    """Of the socket of the last LinkUp, in order. Answers to the shell's own requests
    (`request_id` from FIRST_SHELL_REQUEST on) stay in the shell.
    """

    message: ToManager


class RequestTimedOut(msgspec.Struct, frozen=True):
    """No answer within 30 s, or the frame could not be sent while the link stayed up."""

    request_id: int


# --- workers over IPC; OfferTaken, WorkerParked, WorkerReady and WorkerAsked come from there


class Withdrawn(msgspec.Struct, frozen=True):
    """The answer to Withdraw and Remove: what was still on the shelf and is not any more."""

    attempt_ids: tuple[int, ...]


class TaskRead(msgspec.Struct, frozen=True):
    """The answer to ReadTaskState; `state` None if it cannot be known (then `trouble` says why)."""

    token: RequestToken
    state: TaskState | None
    trouble: str | None = None


# --- worker processes


class SlotsPlanned(msgspec.Struct, frozen=True):
    """The host can do what the suite's schedule and limits ask for."""

    assignment_id: int
    worker_count: int


class SlotsRefused(msgspec.Struct, frozen=True):
    """It cannot; never silently."""

    assignment_id: int
    reason: str


class WorkerSpawned(msgspec.Struct, frozen=True):
    """It runs; WorkerReady follows when it has connected."""

    worker: WorkerKey
    pid: int


class SpawnFailed(msgspec.Struct, frozen=True):
    worker: WorkerKey
    reason: str


class WorkerExited(msgspec.Struct, frozen=True):
    """Its process is gone and reaped, and so is everything it had started."""

    worker: WorkerKey
    reason: ExitReason


class SlotsReleased(msgspec.Struct, frozen=True):
    """The answer to ReleaseSlots; `trouble` if something is left on the host."""

    assignment_id: int
    trouble: str | None = None


# --- hooks and the debt book


class HookDone(msgspec.Struct, frozen=True):
    """The answer to RunHook, also after CancelHook."""

    assignment_id: int
    phase: HookPhase
    kind: Literal["ok", "command", "timeout", "network", "cancelled"]
    exit_code: int | None = None
    stderr_tail: str = ""
    seconds: float = 0.0
    tries: int = 1  # of its downloads


class DebtOwed(msgspec.Struct, frozen=True):
    """The cleanup is on disk; preparation may start. `trouble`: it could not be written."""

    assignment_id: int
    trouble: str | None = None


# --- the outbox


class ResultStored(msgspec.Struct, frozen=True):
    """In the outbox: it survives `kill -9` of the agent."""

    op_id: UUID


class ResultRefused(msgspec.Struct, frozen=True):
    """The outbox could not take it (disk full)."""

    op_id: UUID
    reason: str


Event: TypeAlias = (
    Booted
    | Tick
    | FlushDue
    | ShutdownAsked
    | HostTroubled
    | DiskNoted
    | LinkUp
    | LinkLost
    | FrameReceived
    | RequestTimedOut
    | IpcEvent
    | Withdrawn
    | TaskRead
    | SlotsPlanned
    | SlotsRefused
    | WorkerSpawned
    | SpawnFailed
    | WorkerExited
    | SlotsReleased
    | HookDone
    | DebtOwed
    | ResultStored
    | ResultRefused
)
