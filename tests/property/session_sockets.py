"""The first half of the session machine: connections, what they say, and claims.

Reports, lost leases and operators are in session_machine.py.
"""

import uuid
from typing import ClassVar

from core.errors import Superseded
from managers.services.heartbeat import Beat, record_beat
from mitosis_protocol.enums import ManagerState
from tasks.dispatcher import Claim
from tasks.new_task import RetryPolicy
from tasks.rows import ClaimVerdict
from tests.property.choices import (
    RARELY,
    RUNNERS,
    WANTS,
    Draw,
    pick,
)
from tests.property.moves import MovesMachine
from tests.property.records import Task
from tests.property.session_lab import SessionLab
from tests.property.session_model import TTL_S, Session, SessionModel

MAX_TASKS = 5
MAX_FAILURES, MAX_ATTEMPTS = 4, 8
# Mostly the newest session, often one of the past.
WHICH = (0, 0, 0, 1, 1, 2, 3)


class SocketMoves(MovesMachine):
    """Two managers, a suite with two tasks, and one session each to begin with."""

    # Made once for many examples by whoever runs the machine.
    lab: ClassVar[SessionLab]

    def __init__(self) -> None:
        super().__init__()
        self.lab.begin()
        self.model = SessionModel(self.lab.managers())
        self.sessions: dict[int, list[Session]] = {runner: [] for runner in self.model.managers}
        self.engaged = {
            runner: [manager.engagement or 0] for runner, manager in self.model.managers.items()
        }
        for runner in self.sessions:
            self._connect(runner)
        self._submit()

    # --- sessions ---

    def connect(self, draw: Draw) -> None:
        self._connect(self._runner(draw))

    def take_over(self, draw: Draw) -> None:
        """The old socket's end, its beat and its claim arrive after the new one was accepted."""
        runner = self._runner(draw)
        old = self.sessions[runner][-1]
        self._connect(runner)
        for word in draw((("beat", "close"), ("close", "beat"), ("claim", "close"), ("claim",))):
            self._say(word, old)

    def close(self, draw: Draw) -> None:
        self._say("close", self._session(draw))

    def beat(self, draw: Draw) -> None:
        self._say("beat", self._session(draw))

    def claim(self, draw: Draw) -> None:
        self._claim(self._session(draw), draw(WANTS), back=draw(RARELY))

    def show_an_old_token(self, draw: Draw) -> None:
        """A socket that waited while the generation moved on."""
        runner = self._runner(draw)
        self._connect(runner, generation=self.model.managers[runner].generation - 1)

    def _say(self, word: str, session: Session) -> None:
        if word == "close":
            parameters = {"runner_id": session.runner, "session_epoch": session.epoch}
            [(closed,)] = self.lab.call("runners", "close_session", parameters)
            assert bool(closed) is self.model.close(session)
        elif word == "beat":
            said = Beat(session.runner, session.epoch, ManagerState.EXECUTING)
            try:
                record_beat(said, ttl_s=TTL_S)
            except Superseded:
                is_renewed = False
            else:
                is_renewed = True
            assert is_renewed is self.model.beat(session)
        else:
            self._claim(session, want=1)

    def _connect(self, runner: int, *, generation: int | None = None) -> None:
        if generation is None:
            generation = self.model.managers[runner].generation
        parameters = {
            "runner_id": runner,
            "generation": generation,
            "process_id": uuid.uuid4(),
            "ttl_s": TTL_S,
        }
        found = self.lab.call("runners", "open_session", parameters)
        expected = self.model.connect(runner, generation)
        assert [row[0] for row in found] == ([] if expected is None else [expected.epoch])
        if expected is not None:
            self.sessions[runner].append(expected)

    # --- tasks ---

    def submit(self, draw: Draw) -> None:
        if sum(not task.is_ended for task in self.model.tasks.values()) < MAX_TASKS:
            self._submit()
        else:
            self.claim(draw)

    def _submit(self) -> None:
        retry = RetryPolicy(max_failures=MAX_FAILURES, max_attempts=MAX_ATTEMPTS)
        for ref in self.lab.submit(2, in_suite=True, retry=retry):
            task = Task(
                id=ref.id,
                uuid=ref.uuid,
                in_suite=True,
                max_failures=MAX_FAILURES,
                max_attempts=MAX_ATTEMPTS,
            )
            self.model.submit(task, {})

    def _claim(self, session: Session, want: int, *, back: bool = False) -> None:
        """`back`: with the engagement before this one, which is over."""
        manager = self.model.managers[session.runner]
        assignment_id = pick(self.engaged[session.runner], int(back))
        claim, claim_id = self.lab.claim_as(session, assignment_id, want)
        refusal = self.model.claim_refusal(session)
        if refusal is not None:
            assert claim == Claim(refusal)
            return
        is_engaged = assignment_id == manager.engagement
        expected = self.model.claimable(session.runner, in_suite=True)[: want * is_engaged]
        assert [task.task_id for task in claim.tasks] == [task.id for task in expected]
        assert claim.verdict is (ClaimVerdict.TASK if expected else ClaimVerdict.NOTHING)
        for task, given in zip(expected, claim.tasks, strict=True):
            self.model.claimed(task, session.runner, given.attempt_id, claim_id)

    # --- parts ---

    def _runner(self, draw: Draw) -> int:
        return self.lab.runner_ids[draw(RUNNERS)]

    def _session(self, draw: Draw) -> Session:
        return pick(self.sessions[self._runner(draw)], draw(WHICH))
