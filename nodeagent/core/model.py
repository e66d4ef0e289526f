"""What the agent knows: one mutable model, changed by the functions of nodeagent.core only.

Made by nodeagent.state.AgentState. An event changes the model; what follows from it is found by
the `advance` functions afterwards, so no part has to call back another.
"""

from collections import deque
from enum import Enum, auto
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from mitosis_protocol.enums import ManagerState
from mitosis_protocol.from_manager import SuiteCompleted, SuiteFailed
from mitosis_protocol.manager_reports import Scalar, TaskEvent, TaskReport
from mitosis_protocol.to_manager import TaskSuiteSpec
from nodeagent.core.attempts import Attempt, Ledger
from nodeagent.core.requests import Requests
from nodeagent.effects import Effect, Note
from nodeagent.events import HookPhase, OwedCleanup, RequestToken, WorkerKey

HEARTBEAT_S = 30.0  # until the welcome says otherwise
FOREVER = float("inf")
# A manager may send 200 frames a second in the long run, and 1,000 at once; reports, uploads and
# events need their part.
FETCHES_PER_S = 100.0
FETCH_BURST = 500.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the core, in seconds."""

    flush_s: float = 0.005  # how long a report waits for company
    # The same while tasks wait here: no worker idles for the answer. A start waits as long for its
    # result, so that quick tasks are told once.
    busy_flush_s: float = 0.1
    # A lost push costs this and the way to a running command: 15 s at most, on a busy machine, too.
    idle_ask_s: float = 12.0
    retry_s: float = 1.0  # after a refusal that time may cure
    connect_s: float = 60.0  # a python start takes seconds on a loaded host
    leave_s: float = 30.0  # for workers without a task, before they are killed (the RFC's figure)
    stop_s: float = 30.0  # for a worker to let go of a task, its own grace included
    settle_s: float = 10.0  # at the end: for answers to the last reports
    respawn_max_s: float = 30.0
    quick_death_s: float = 30.0  # a worker that lived longer starts its backoff afresh


class Step(Enum):
    """Of an engagement, in order; a failed or cancelled one skips ahead."""

    PLANNING = auto()  # can the host do this
    OWING = auto()  # the cleanup is being written down
    PREPARING = auto()  # the hook runs
    EXECUTING = auto()
    DRAINING = auto()  # nothing new; what runs goes on
    CLEARING = auto()  # workers leave
    RELEASING = auto()  # their slots are removed
    CLEANING = auto()  # the hook runs
    REPORTING = auto()  # the coordinator has to hear of it


STATE_OF: dict[Step, ManagerState] = {
    Step.PLANNING: ManagerState.PREPARING,
    Step.OWING: ManagerState.PREPARING,
    Step.PREPARING: ManagerState.PREPARING,
    Step.EXECUTING: ManagerState.EXECUTING,
    Step.DRAINING: ManagerState.EXECUTING,
    Step.CLEARING: ManagerState.CLEANUP,
    Step.RELEASING: ManagerState.CLEANUP,
    Step.CLEANING: ManagerState.CLEANUP,
    Step.REPORTING: ManagerState.CLEANUP,
}

Trouble: TypeAlias = Literal["command", "timeout", "network", "limits"]
Letter: TypeAlias = SuiteFailed | SuiteCompleted


class Engagement:
    """The suite this host works for, from the assignment to the last word about it."""

    def __init__(self, assignment_id: int, suite: TaskSuiteSpec) -> None:
        self.assignment_id = assignment_id
        self.debt_id = assignment_id  # stays when a returning host gets a new engagement
        self.suite = suite
        self.planned: TaskSuiteSpec = suite  # the schedule that was asked for last
        self.step = Step.PLANNING
        self.worker_count = 0
        self.has_slots = False
        self.is_owed = False
        self.is_prepared = False  # a preparation was begun, or there was none to begin
        self.is_leaving = False  # it has to end as soon as the running step allows
        self.is_confirmed = False  # the coordinator takes our claims
        self.is_paused = False
        self.is_fenced = False  # the lease ran out and the suite wants no unseen runs
        self.has_been_ready = False  # at least one worker connected
        self.trouble: tuple[Trouble, str] | None = None  # of its workers
        self.deadline = FOREVER  # of the present step
        self.letters: deque[Letter] = deque()
        self.is_letter_sent = False
        self.letter_at = 0.0
        self.completed_count = 0
        self.failed_count = 0

    @property
    def prefetch(self) -> int:
        return self.suite.worker_schedule.task_prefetch_count


class SlotPhase(Enum):
    WAITING = auto()  # no process; spawned again at `due_at`
    STARTING = auto()
    READY = auto()


class Slot:
    """One place for a worker; its generations follow each other."""

    def __init__(self, local_id: int) -> None:
        self.local_id = local_id
        self.generation = 0
        self.phase = SlotPhase.WAITING
        self.due_at = 0.0
        self.started_at = 0.0
        self.kill_by = FOREVER
        self.is_killed = False
        self.is_leaving = False  # not spawned again
        self.is_parked = False
        self.has_worked = False
        self.quick_deaths = 0
        self.attempt: Attempt | None = None
        self.ahead: Attempt | None = None  # handed beside it, begun when that one is reported

    @property
    def key(self) -> WorkerKey:
        return WorkerKey(self.local_id, self.generation)

    @property
    def is_present(self) -> bool:
        return self.phase is not SlotPhase.WAITING


class Claim:
    """One question for tasks; the same `claim_id` until it is answered."""

    def __init__(self, claim_id: UUID, want: int, assignment_id: int) -> None:
        self.claim_id = claim_id
        self.want = want
        self.assignment_id = assignment_id
        self.received: set[int] = set()
        self.is_sent = False
        self.due_at = 0.0


class Reports:
    """Lines for the coordinator: starts are best effort, the rest is in the outbox."""

    def __init__(self) -> None:
        self.lines: dict[UUID, TaskReport] = {}  # in the outbox, not settled
        self.unstored: dict[UUID, Attempt] = {}  # on their way into it
        self.queue: dict[UUID, None] = {}  # to be sent
        self.later: dict[UUID, None] = {}  # to be sent again at `retry_at`
        self.starts: dict[int, float] = {}  # attempts to be reported as started, and from when on
        self.permits: dict[int, RequestToken] = {}  # who may not start before the answer
        self.to_permit: dict[int, None] = {}  # of these, not asked yet
        self.refused: dict[UUID, None] = {}  # the outbox had no room: tried again
        self.in_flight = 0  # frames
        self.is_flush_scheduled = False
        self.retry_at = FOREVER


class Supply:
    """What is asked for and what goes back."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self.asked_count = 0
        self.dry_until = 0.0
        self.is_thrifty = False  # other hosts idle: no more than the workers can run
        self.to_return: dict[int, None] = {}
        self.return_at = 0.0
        self.budget = FETCH_BURST  # fetches that may be sent now
        self.budget_at = 0.0


class Session:
    """The link and what was agreed on it."""

    def __init__(self) -> None:
        self.manager_uuid: UUID | None = None
        self.is_up = False
        self.is_welcome = False
        self.was_welcome = False  # ever, in this life
        self.greet_at = FOREVER
        self.heartbeat_s = HEARTBEAT_S
        self.next_beat_at = FOREVER
        self.is_beat_due = False
        self.lease_until = FOREVER
        self.lease_margin_s = 0.0
        self.config_version = 0
        self.is_wanted = True  # desired_state is Active


class Model:
    """Everything, and the effects of the event being handled."""

    def __init__(self, process_id: UUID, settings: Settings) -> None:
        self.process_id = process_id
        self.settings = settings
        self.now = self.started_at = 0.0  # monotonic; the start is `Booted`
        self.out: list[Effect] = []
        self.requests = Requests()
        self.ledger = Ledger()
        self.session = Session()
        self.supply = Supply()
        self.reports = Reports()
        self.slots: dict[int, Slot] = {}
        self.parked_count = 0
        self.ready_count = 0
        self.generation = 0  # never used twice: an event of an earlier life must not fit a later
        self.is_serving = True
        self.has_room = True  # on the disk, for results
        self.staff_at = FOREVER  # when workers have to be spawned or dismissed
        self.engagement: Engagement | None = None
        self.next_suite: tuple[int, TaskSuiteSpec] | None = None
        self.debts: deque[OwedCleanup] = deque()
        self.is_paying = False  # the hook of the first debt runs
        self.hook: tuple[int, HookPhase] | None = None  # the one that runs
        self.last_assignment_id = -1  # the last one we are done with
        self.readers: dict[RequestToken, None] = {}
        self.news: list[TaskEvent] = []
        self.news_bytes = 0
        self.is_stopping = False
        self.is_forced = False
        self.is_over = False
        self.exit_code = 0
        self.exit_reason = "asked to stop"
        self.stop_deadline = FOREVER
        self.completed_count = 0
        self.failed_count = 0
        self._drawn = 0
        self._id_base = process_id.int & ~0xFFFF_FFFF_FFFF_FFFF

    def draw_id(self) -> UUID:
        """New in this life and, by the random half, in every other."""
        self._drawn += 1
        return UUID(int=self._id_base | self._drawn)

    def note(self, event: str, /, **facts: Scalar) -> None:
        self.out.append(Note("info", event, facts))

    def warn(self, event: str, /, **facts: Scalar) -> None:
        self.out.append(Note("warning", event, facts))

    @property
    def state(self) -> ManagerState:
        """What a heartbeat says."""
        if self.engagement is not None:
            return STATE_OF[self.engagement.step]
        return ManagerState.CLEANUP if self.is_paying else ManagerState.IDLE

    @property
    def is_accepting(self) -> bool:
        """Whether an attempt may wait for a worker here."""
        engaged = self.engagement
        return (
            engaged is not None
            and engaged.step is Step.EXECUTING
            and not engaged.is_paused
            and not engaged.is_fenced
            and self.session.is_wanted
            and self.has_room
            and not self.is_stopping
        )
