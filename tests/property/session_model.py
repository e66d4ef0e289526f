"""Who may speak for a manager: the oracle of the session machine, on top of that of the queue.

Written from correctness 1.3 to 1.5: the newest session may claim and renew the lease, an older one
may do neither and cannot close the newer one; the lease alone decides what is lost; what is lost
and not claimed again is taken back by a manager that is engaged, unless it was revoked.
"""

from dataclasses import dataclass

from mitosis_protocol.enums import ConnState, DesiredState, ManagerState, ReportAnswer
from tasks.rows import ClaimVerdict
from tests.property.model import Model
from tests.property.records import Attempt

TTL_S = 120
GRACE_S = 5
ACTIVE, DRAINING, QUARANTINED, SHUTDOWN = DesiredState
# The wish, and from which ones it can be said.
WISHES = {
    "drain": (DRAINING, {ACTIVE, DRAINING}),
    "undrain": (ACTIVE, {ACTIVE, DRAINING}),
    "quarantine": (QUARANTINED, {ACTIVE, DRAINING, QUARANTINED}),
    "release": (ACTIVE, {QUARANTINED}),
}


@dataclass(frozen=True)
class Session:
    """One accepted connection; it never learns what happened after it."""

    runner: int
    epoch: int
    generation: int


@dataclass(eq=False)
class Manager:
    """What the rows of one manager have to say. `left_s` is what the lease still has."""

    epoch: int
    generation: int
    engagement: int | None
    lease_epoch: int
    left_s: float = TTL_S
    conn: ConnState = ConnState.DISCONNECTED
    wish: DesiredState = ACTIVE
    state: ManagerState = ManagerState.IDLE
    is_revoked: bool = False
    may_return: bool = False  # its engagement ended because it was silent, and for nothing else

    @property
    def is_silent(self) -> bool:
        return self.left_s <= 0

    @property
    def is_overdue(self) -> bool:
        return self.left_s < -GRACE_S

    def row(self, runner: int) -> list[object]:
        return [
            runner,
            self.generation,
            self.conn.code,
            self.wish.code,
            self.is_revoked,
            self.lease_epoch,
            not self.is_silent,
            self.state.code,
            self.engagement,
        ]


class SessionModel(Model):
    """Two managers; `epochs` of the queue's model are theirs."""

    def __init__(self, managers: dict[int, Manager]) -> None:
        super().__init__(exclusive=-1, tagged=-1)
        self.managers = managers
        for runner, manager in managers.items():
            self.epochs[runner] = manager.epoch

    # --- sessions ---

    def connect(self, runner: int, generation: int) -> Session | None:
        manager = self.managers[runner]
        if manager.is_revoked or generation != manager.generation:
            return None
        self.epochs[runner] += 1
        manager.lease_epoch, manager.left_s = self.epochs[runner], TTL_S
        manager.conn = ConnState.CONNECTED
        return Session(runner, self.epochs[runner], generation)

    def close(self, session: Session) -> bool:
        manager = self.managers[session.runner]
        is_newest = session.epoch == self.epochs[session.runner]
        if not is_newest or manager.conn is not ConnState.CONNECTED:
            return False
        manager.conn = ConnState.DISCONNECTED
        return True

    def beat(self, session: Session) -> bool:
        manager = self.managers[session.runner]
        if manager.is_revoked or session.epoch != manager.lease_epoch:
            return False
        manager.left_s, manager.state = TTL_S, ManagerState.EXECUTING
        return True

    def claim_refusal(self, session: Session) -> ClaimVerdict | None:
        manager = self.managers[session.runner]
        if manager.is_revoked:
            return ClaimVerdict.REVOKED
        if session.epoch != self.epochs[session.runner]:
            return ClaimVerdict.SUPERSEDED
        if manager.wish is not ACTIVE:
            return ClaimVerdict.INACTIVE
        return ClaimVerdict.LEASE_LOST if manager.is_silent else None

    # --- time and the coordinator ---

    def time_passes(self, seconds: float) -> None:
        for manager in self.managers.values():
            manager.left_s -= seconds

    def be_away(self, seconds: float) -> int:
        """Nobody served: every lease that ran when that began is full again; answers how many."""
        spared = 0
        for manager in self.managers.values():
            is_spared = not manager.is_silent and not manager.is_revoked
            manager.left_s = TTL_S if is_spared else manager.left_s - seconds
            spared += is_spared
        return spared

    def reap(self) -> list[str]:
        holding = {task.runner for task in self.tasks.values() if task.runner is not None}
        fenced = {runner for runner in holding if self.managers[runner].is_overdue}
        answers = self._take_all(fenced, charge=True, is_lost=True)
        for runner in fenced:
            self.managers[runner].lease_epoch = self.epochs[runner]
            self.managers[runner].conn = ConnState.LOST
        return answers

    def expire(self) -> list[int]:
        gone = []
        for runner, manager in sorted(self.managers.items()):
            is_present = manager.state is not ManagerState.OFFLINE or manager.engagement is not None
            if manager.is_overdue and is_present:
                gone.append(runner)
                manager.may_return = manager.may_return or manager.engagement is not None
                manager.state, manager.engagement = ManagerState.OFFLINE, None
        return gone

    # --- back again ---

    def may_readopt(self, runner: int) -> bool:
        """Whether a manager without an engagement gets a new one."""
        manager = self.managers[runner]
        return manager.may_return and not manager.is_revoked and manager.wish is ACTIVE

    def adopt(self, attempt: Attempt, runner: int, *, engaged: bool) -> ReportAnswer:
        is_lost = attempt.is_current and attempt.task.lost == runner
        if is_lost and self.managers[runner].is_revoked:
            return ReportAnswer.STALE_ATTEMPT
        return super().adopt(attempt, runner, engaged=engaged)

    # --- operators ---

    def wishes(self, runner: int, word: str) -> bool:
        """Whether it can be wished for."""
        wanted, sources = WISHES[word]
        manager = self.managers[runner]
        if manager.is_revoked or manager.wish not in sources:
            return False
        manager.wish = wanted
        return True

    def revoke(self, runner: int) -> bool:
        manager = self.managers[runner]
        was_revoked, manager.engagement = manager.is_revoked, None
        if not was_revoked:
            manager.is_revoked, manager.conn = True, ConnState.LOST
            manager.generation += 1
            self.epochs[runner] += 1
            manager.lease_epoch += 1
            manager.left_s = 0
        return not was_revoked
