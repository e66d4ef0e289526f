"""Two managers whose connections come, go and overtake each other, while they hold tasks.

Every session ever opened may speak again, whatever happened since. Tasks are few and simple; what
their reports mean is the queue machine's part. Time passes by moving the leases.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from accounts.actors import SYSTEM
from core.errors import InvalidTransition
from managers.services import wishes
from managers.services.engagement import finish_engagement, readopt
from managers.services.expiry import expire_managers
from runners.models import Runner
from runners.services.presence import is_served
from tasks.rows import SettleOp
from tests.property.choices import (
    EITHER,
    OUTCOMES,
    RARELY,
    RECENT,
    Draw,
    pick,
    report_on,
)
from tests.property.records import Attempt
from tests.property.session_lab import SessionLab
from tests.property.session_model import GRACE_S, TTL_S
from tests.property.session_sockets import SocketMoves
from tests.property.truth import check_rows

# Sums of them stay twenty seconds away from a whole lease.
PAUSES_S = (50, 50, 150)
ABSENCE_S = 50


class SessionMachine(SocketMoves):
    """Adds reports, lost leases, returns and operators."""

    MOVES = (
        "connect connect take_over close close close beat beat beat beat submit claim claim claim"
        " claim start report report time_passes time_passes time_passes reap reap expire come_back"
        " come_back come_back vanish vanish leave be_away wish wish revoke show_an_old_token"
    )

    # --- tasks ---

    def start(self, draw: Draw) -> None:
        for attempt in self._attempt(draw):
            expected = self.model.start(attempt, attempt.runner)
            assert self.lab.start(attempt.id, attempt.runner) is expected

    def report(self, draw: Draw) -> None:
        """By the manager that had it, over whichever session; the attempt is the fence."""
        for attempt in self._attempt(draw):
            report = report_on(attempt, attempt.runner, SettleOp.COMMIT, draw(OUTCOMES))
            [settled] = self.lab.settle([report])
            assert settled.answer is self.model.report(attempt, report)

    # --- time and the coordinator ---

    def time_passes(self, draw: Draw) -> None:
        seconds = draw(PAUSES_S)
        self.lab.later(seconds)
        self.model.time_passes(seconds)

    def be_away(self, draw: Draw) -> None:
        """Nobody serves for a while: who was alive before may not be judged by that silence."""
        self.lab.be_away(ABSENCE_S)
        assert not is_served(lease_ttl_s=TTL_S)
        assert self.lab.mark_served() == [(True, self.model.be_away(ABSENCE_S))]
        assert is_served(lease_ttl_s=TTL_S)
        if draw(EITHER):
            self.reap(draw)

    def reap(self, _: Draw) -> None:
        assert sorted(self.lab.reap(grace_s=GRACE_S)) == self.model.reap()

    def expire(self, _: Draw) -> None:
        gone = expire_managers(grace_s=GRACE_S, lease_ttl_s=TTL_S, mass_expiry_ratio=0.3, batch=100)
        assert gone == self.model.expire()

    # --- back again ---

    def come_back(self, draw: Draw) -> None:
        self._come_back(draw, self._runner(draw))

    def vanish(self, draw: Draw) -> None:
        """Silence, its end and the return in one step: what follows a loss is worth more tries."""
        runner = self._runner(draw)
        self._be_silent(runner, PAUSES_S[-1])
        self.reap(draw)
        if draw(EITHER):
            self.expire(draw)
        word = draw(("", "", "drain", "quarantine", "revoke"))
        if word == "revoke":
            self._revoke(runner)
        elif word:
            self._wish(runner, word)
        self._come_back(draw, runner)

    def _come_back(self, draw: Draw, runner: int) -> None:
        """Connect, return to the suite, say what is held; adopt what is still one's own."""
        if draw(EITHER):
            self._connect(runner)
        self._readopt(runner)
        said = [one for one in self.model.attempts.values() if one.runner == runner]
        found = self.lab.inventory(runner, [one.id for one in said])
        assert found == self.model.inventory(runner, said)
        engagement = self.model.managers[runner].engagement
        for attempt in said:
            if found[attempt.id] == "lost" or draw(RARELY):
                expected = self.model.adopt(attempt, runner, engaged=engagement is not None)
                answers = self.lab.adopt([attempt.id], runner, assignment_id=engagement)
                assert answers == [expected]

    def _readopt(self, runner: int) -> None:
        manager = self.model.managers[runner]
        answer = readopt(manager_id=runner, suite_uuid=self.lab.suite_uuid, lease_s=3600)
        if manager.engagement is not None:
            assert answer == manager.engagement
            return
        assert (answer is not None) is self.model.may_readopt(runner)
        if answer is not None:
            manager.engagement = answer
            self.engaged[runner].append(answer)

    def leave(self, draw: Draw) -> None:
        """The manager gives an engagement back; one that is over is not given back again."""
        runner = self._runner(draw)
        manager = self.model.managers[runner]
        assignment_id = pick(self.engaged[runner], draw((0, 0, 1)))
        is_live = assignment_id == manager.engagement
        assert finish_engagement(manager_id=runner, assignment_id=assignment_id) is is_live
        if is_live:
            manager.engagement = None

    # --- operators ---

    def wish(self, draw: Draw) -> None:
        word = draw(("drain", "undrain", "undrain", "quarantine", "release", "release"))
        self._wish(self._runner(draw), word)

    def revoke(self, draw: Draw) -> None:
        if draw(EITHER):
            self._revoke(self._runner(draw))

    def _wish(self, runner: int, word: str) -> None:
        reason = {"reason": "a test"} if word == "quarantine" else {}
        try:
            getattr(wishes, f"{word}_manager")(
                actor=SYSTEM, runner=Runner.objects.get(pk=runner), **reason
            )
        except InvalidTransition:
            is_taken = False
        else:
            is_taken = True
        assert is_taken is self.model.wishes(runner, word)

    def _revoke(self, runner: int) -> None:
        answer = wishes.revoke_manager(actor=SYSTEM, runner=Runner.objects.get(pk=runner))
        assert answer is self.model.revoke(runner)
        # Beyond the grace at once: how long a step takes must not decide anything.
        self._be_silent(runner, PAUSES_S[0])

    def _be_silent(self, runner: int, seconds: float) -> None:
        self.lab.later(seconds, [runner])
        self.model.managers[runner].left_s -= seconds

    # --- truth ---

    def compare(self) -> None:
        check_rows(self.lab, self.model)
        assert self.lab.rows() == [
            manager.row(runner) for runner, manager in sorted(self.model.managers.items())
        ]

    # --- parts ---

    def _attempt(self, draw: Draw) -> Iterator[Attempt]:
        """One whose manager has a token that works."""
        spoken_for = [
            one
            for one in self.model.attempts.values()
            if not self.model.managers[one.runner].is_revoked
        ]
        if spoken_for:
            yield pick(spoken_for, draw(RECENT))


@contextmanager
def fleet() -> Iterator[None]:
    """The world in which the machine runs."""
    SessionMachine.lab = SessionLab()
    try:
        yield
    finally:
        SessionMachine.lab.close()
        del SessionMachine.lab
