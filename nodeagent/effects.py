"""Everything the node agent can do: the output of `AgentState.handle`, in the order to do it.

Carried out by the shell (nodeagent.agent); what an effect brings about comes back as an event of
nodeagent.events, named in its docstring. An effect that cannot be carried out any more (a worker
that is gone, a link that is down) is dropped: the core hears of the cause by its own event.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias
from uuid import UUID

import msgspec

from mitosis_protocol.from_manager import FromManager, Heartbeat, ReportTasks
from mitosis_protocol.ipc import Control, ToWorker, WorkerSettings, WorkItem
from mitosis_protocol.manager_reports import Scalar, TaskReport
from mitosis_protocol.to_manager import TaskSuiteSpec
from nodeagent.events import HookPhase, RequestToken, WorkerKey

# The core numbers its requests from 1; what the shell asks by itself (links for hooks) starts here.
FIRST_SHELL_REQUEST: Final = 1 << 48

# --- the coordinator


class SendFrame(msgspec.Struct, frozen=True):
    """Now, on the present socket. With a `request_id` it is answered by FrameReceived,
    RequestTimedOut or LinkLost.
    """

    message: FromManager


class SendHeartbeat(msgspec.Struct, frozen=True):
    """As SendFrame, after the shell has put its own measurements into `metrics`."""

    message: Heartbeat


class SyncAndSend(msgspec.Struct, frozen=True):
    """Bring the outbox to the disk, then send. If it cannot be synced: RequestTimedOut."""

    message: ReportTasks


# --- the outbox


class StoreResult(msgspec.Struct, frozen=True):
    """Insert under `report.op_id`: ResultStored or ResultRefused."""

    report: TaskReport


class ForgetResults(msgspec.Struct, frozen=True):
    """The coordinator has them, or does not want them."""

    op_ids: tuple[UUID, ...]


class ScheduleFlush(msgspec.Struct, frozen=True):
    """FlushDue once, after so many seconds."""

    after_s: float


# --- workers over IPC


class PutOnShelf(msgspec.Struct, frozen=True):
    """Parked fetches are answered at once: OfferTaken."""

    items: tuple[WorkItem, ...]
    at_front: bool = False


class Withdraw(msgspec.Struct, frozen=True):
    """Take back up to so many, newest first: Withdrawn."""

    at_most: int


class Remove(msgspec.Struct, frozen=True):
    """Take these back where they are still there: Withdrawn."""

    attempt_ids: tuple[int, ...]


class SetServing(msgspec.Struct, frozen=True):
    """Whether fetches are answered from the shelf."""

    is_serving: bool


class ReplyIpc(msgspec.Struct, frozen=True):
    token: RequestToken
    answer: ToWorker


class Publish(msgspec.Struct, frozen=True):
    """To all workers."""

    message: Control | WorkerSettings


class DismissWorker(msgspec.Struct, frozen=True):
    """Its next fetch, or the parked one, is told to leave; WorkerExited follows."""

    worker: WorkerKey


class ReadTaskState(msgspec.Struct, frozen=True):
    """The state of another task, by HTTP: TaskRead."""

    token: RequestToken
    task_uuid: UUID


# --- worker processes


class PlanSlots(msgspec.Struct, frozen=True):
    """Can this host do what the suite asks for: SlotsPlanned or SlotsRefused.

    Also for a changed schedule of a running suite; SpawnWorker uses the last plan.
    """

    assignment_id: int
    suite: TaskSuiteSpec


class SpawnWorker(msgspec.Struct, frozen=True):
    """Attach its services and start it: WorkerSpawned (then WorkerReady) or SpawnFailed."""

    worker: WorkerKey
    assignment_id: int
    suite: TaskSuiteSpec


class KillWorker(msgspec.Struct, frozen=True):
    """SIGKILL, its whole tree: WorkerExited. Nothing happens to one that is gone."""

    worker: WorkerKey


class ReleaseSlots(msgspec.Struct, frozen=True):
    """After the last worker: remove cgroups, verify them empty: SlotsReleased."""

    assignment_id: int


# --- hooks and the debt book


class OweCleanup(msgspec.Struct, frozen=True):
    """Write the debt and sync it: DebtOwed."""

    assignment_id: int
    suite: TaskSuiteSpec


class SettleDebt(msgspec.Struct, frozen=True):
    """The cleanup has run (or there was nothing to clean up)."""

    assignment_id: int


class RunHook(msgspec.Struct, frozen=True):
    """HookDone, always. Without a `suite` it is a debt of an earlier life: the debt book knows."""

    assignment_id: int
    phase: HookPhase
    suite: TaskSuiteSpec | None


class CancelHook(msgspec.Struct, frozen=True):
    """Kill the one that runs; its HookDone says `cancelled` unless it ended first."""

    assignment_id: int
    phase: HookPhase


# --- the process itself


class Note(msgspec.Struct, frozen=True):
    """A line for the log."""

    level: Literal["debug", "info", "warning", "error"]
    event: str
    facts: Mapping[str, Scalar] = {}


class Exit(msgspec.Struct, frozen=True):
    """The last effect there is: close everything and end with this code."""

    code: int
    reason: str


Effect: TypeAlias = (
    SendFrame
    | SendHeartbeat
    | SyncAndSend
    | StoreResult
    | ForgetResults
    | ScheduleFlush
    | PutOnShelf
    | Withdraw
    | Remove
    | SetServing
    | ReplyIpc
    | Publish
    | DismissWorker
    | ReadTaskState
    | PlanSlots
    | SpawnWorker
    | KillWorker
    | ReleaseSlots
    | OweCleanup
    | SettleDebt
    | RunHook
    | CancelHook
    | Note
    | Exit
)
