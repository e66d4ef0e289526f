"""The first half of the state machine: a world of two runners, submissions and claims.

Reports, the coordinator's own moves and the comparison with the database are in machine.py.
"""

import uuid
from typing import ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from mitosis_protocol.enums import DependencyCondition
from tasks.dispatcher import Claim
from tasks.new_task import Dependency, RetryPolicy
from tasks.rows import ClaimRequest, ClaimVerdict
from tests.property.choices import (
    ATTEMPT_BUDGETS,
    CONDITIONS,
    EITHER,
    FAILURE_BUDGETS,
    PRIORITIES,
    RARELY,
    RECENT,
    RUNNERS,
    WANTS,
    Draw,
    pick,
)
from tests.property.machine_lab import TAG, MachineLab
from tests.property.model import Model
from tests.property.records import Attempt, Task
from tests.property.verdicts import RETRIED_EXIT_CODE

MAX_TASKS = 5
QUEUES = ((0, False), (0, True), (1, False))


class ClaimMoves(RuleBasedStateMachine):
    """Runner 0 is a manager with a tag, runner 1 an independent worker without."""

    # Made once for many examples by whoever runs the machine.
    lab: ClassVar[MachineLab]

    def __init__(self) -> None:
        super().__init__()
        self.lab.begin()
        manager, worker = self.runners = self.lab.runner_ids
        self.model = Model(exclusive=worker, tagged=manager)
        self.claims: list[tuple[uuid.UUID, bool]] = []
        # What the last move was about: often the next one is about it, too.
        self.focus: Attempt | None = None
        for runner in (0, 1):
            self._connect(runner)

    def _connect(self, runner: int) -> None:
        runner_id = self.runners[runner]
        epoch = self.lab.connect(runner_id)
        assert epoch == self.model.epochs.get(runner_id, epoch - 1) + 1
        self.model.epochs[runner_id] = epoch
        self.model.silent.discard(runner_id)

    # --- submit ---

    def submit(self, draw: Draw) -> None:
        if len(self.model.tasks) < MAX_TASKS:
            self._submit(draw, in_suite=draw(EITHER))
        else:
            self.claim(draw)

    def submit_after(self, draw: Draw) -> None:
        if len(self.model.tasks) >= 2 * MAX_TASKS:
            self.claim(draw)
            return
        first = self._task(draw)
        upstreams = {first: draw(CONDITIONS)}
        others = [
            task
            for task in self.model.tasks.values()
            if task.in_suite == first.in_suite and task is not first
        ]
        if others and draw(RARELY):
            upstreams[pick(others, draw(RECENT))] = draw(CONDITIONS)
        self._submit(draw, in_suite=first.in_suite, upstreams=upstreams)

    def _submit(
        self,
        draw: Draw,
        *,
        in_suite: bool,
        upstreams: dict[Task, DependencyCondition] | None = None,
    ) -> None:
        upstreams = upstreams or {}
        retries, is_tagged, priority = draw(EITHER), draw(RARELY), draw(PRIORITIES)
        max_failures, max_attempts = draw(FAILURE_BUDGETS), draw(ATTEMPT_BUDGETS)
        retry = RetryPolicy(
            max_failures=max_failures,
            max_attempts=max_attempts,
            retry_on={"exit_codes": [RETRIED_EXIT_CODE]} if retries else None,
        )
        [ref] = self.lab.submit(
            1,
            in_suite=in_suite,
            depends_on=tuple(Dependency(task.uuid, how) for task, how in upstreams.items()),
            retry=retry,
            tags=[TAG] if is_tagged else [],
            priority=priority,
        )
        task = Task(
            id=ref.id,
            uuid=ref.uuid,
            in_suite=in_suite,
            retries=retries,
            is_tagged=is_tagged,
            priority=priority,
            max_failures=max_failures,
            max_attempts=max_attempts,
        )
        self.model.submit(task, upstreams)

    # --- claim ---

    def claim(self, draw: Draw) -> None:
        claim_id = uuid.uuid4()
        runner, in_suite = draw(self._fruitful() or QUEUES) if draw(EITHER) else draw(QUEUES)
        self.claims.append((claim_id, in_suite))
        self._claim(self._request(runner, claim_id, draw(WANTS), is_stale=draw(RARELY)), in_suite)

    def _fruitful(self) -> list[tuple[int, bool]]:
        """Who could take something now, and where."""
        return [
            (runner, in_suite)
            for runner, in_suite in QUEUES
            if self.model.claimable(self.runners[runner], in_suite=in_suite)
        ]

    def repeat_a_claim(self, draw: Draw) -> None:
        """The answer was lost, or somebody else has learned the id."""
        if not self.claims:
            self.claim(draw)
            return
        claim_id, in_suite = pick(self.claims, draw(RECENT))
        self._claim(self._request(draw(RUNNERS), claim_id, 1), in_suite)

    def claim_together(self, draw: Draw) -> None:
        """Both in one statement: each gets only what it may take, and nothing goes to both."""
        first = draw(RUNNERS)
        asked = [self._request(who, uuid.uuid4(), draw(WANTS)) for who in (first, 1 - first)]
        claims = self.lab.claim_all(asked)
        given = [task.attempt_id for claim in claims for task in claim.tasks]
        assert len(set(given)) == len(given)
        for request, claim in zip(asked, claims, strict=True):
            if self.model.refusal(request.runner_id, request.session_epoch) is not None:
                assert not claim.tasks
                continue
            if self.model.repeated(request.runner_id, request.claim_id):
                assert all(task.is_repeat for task in claim.tasks)
                continue
            allowed = self.model.claimable(request.runner_id, in_suite=False)
            assert len(claim.tasks) <= request.want
            assert {task.task_id for task in claim.tasks} <= {task.id for task in allowed}
            self._take(claim, request)

    def _request(
        self, runner: int, claim_id: uuid.UUID, want: int, *, is_stale: bool = False
    ) -> ClaimRequest:
        runner_id = self.runners[runner]
        return ClaimRequest(
            runner_id=runner_id,
            claim_id=claim_id,
            want=want,
            session_epoch=self.model.epochs[runner_id] - is_stale,
            is_exclusive=runner_id == self.model.exclusive,
        )

    def _claim(self, request: ClaimRequest, in_suite: bool) -> None:
        in_suite = in_suite and not request.is_exclusive
        claim = self.lab.claim_for_suite(request) if in_suite else self.lab.claim_all([request])[0]
        runner_id = request.runner_id
        refusal = self.model.refusal(runner_id, request.session_epoch)
        if refusal is not None:
            assert claim == Claim(refusal)
            return
        again = self.model.repeated(runner_id, request.claim_id)
        want = 1 if request.is_exclusive else request.want
        expected = again or self.model.claimable(runner_id, in_suite=in_suite)[:want]
        assert [task.task_id for task in claim.tasks] == [task.id for task in expected]
        assert claim.verdict is (ClaimVerdict.TASK if expected else ClaimVerdict.NOTHING)
        if again:
            assert [task.attempt_id for task in claim.tasks] == [
                task.attempt.id for task in again if task.attempt is not None
            ]
            assert all(task.is_repeat for task in claim.tasks)
        else:
            self._take(claim, request)

    def _take(self, claim: Claim, request: ClaimRequest) -> None:
        for given in claim.tasks:
            assert not given.is_repeat
            task = self.model.tasks[given.task_id]
            self.model.claimed(task, request.runner_id, given.attempt_id, request.claim_id)
            self.focus = task.attempt

    def _task(self, draw: Draw) -> Task:
        return pick(list(self.model.tasks.values()), draw(RECENT))
