"""Two suites from their creation to their end: people, managers and sweeps in any order.

Suite 0 has managers, suite 1 sometimes has one and is often empty. After each step both rows, all
tasks and the counters are what the model says, and a state has changed along its table only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis.stateful import initialize

from accounts.actors import SYSTEM
from core.errors import Conflict, DomainError, InvalidInput, InvalidTransition
from mitosis_protocol.enums import Outcome, ReportAnswer, SuiteState
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.transitions import SUITE, can_move
from suites.models import TaskSuite
from suites.services.create import delete_suite
from suites.services.lifecycle import close_suite, reopen_suite
from suites.services.pausing import pause_suite, resume_suite
from tasks.rows import SettleOp
from tasks.services.suite_cancel import cancel_suite
from tasks.services.suite_rerun import rerun_tasks
from tests.property.choices import EITHER, RARELY, RECENT, RUNNERS, WANTS, Draw, draw_with, pick
from tests.property.moves import dice
from tests.property.suite_lab import SuiteLab
from tests.property.suite_model import Refused, Suite, Work, all_tasks
from tests.property.suite_sweeps import BATCH, SweepMoves

MOSTLY_THE_FIRST = (0, 0, 0, 1)
ENDS = (Outcome.SUCCEEDED, Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMEOUT)
MAX_TASKS = 12
# What may come when nothing is left to do.
ENDINGS = (
    ("complete_the_drained",),
    ("close", "complete_the_drained"),
    ("time_passes", "complete_the_drained", "reopen", "complete_the_drained"),
    ("reopen", "complete_the_drained"),
    ("time_passes", "reopen", "close_the_idle"),
    ("stop_the_failing", "complete_the_drained"),
)


class SuiteMachine(SweepMoves):
    """Adds people and managers."""

    MOVES = (
        "submit submit submit submit_to_both claim claim claim claim report report report report"
        " work_it_off work_it_off work_it_off forge close reopen time_passes time_passes"
        " close_the_idle complete_the_drained complete_the_drained stop_the_failing pause resume"
        " cancel rerun rerun delete end_the_leftovers fold_the_counts"
    )

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[TaskSuite] = []
        self.attempts: list[tuple[int, int, Work]] = []  # id, manager, task

    @initialize(dice=dice)
    def begin(self, dice: int) -> None:
        draw = draw_with(dice)
        for _ in range(2):
            limits = {"max_running": draw((None, None, 1, 2)), "max_failures": draw((None, 1, 2))}
            row = self.lab.create(**limits)
            self.rows.append(row)
            self.suites.append(Suite(row.pk, **limits))
        self.served = [self.suites[0], self.suites[draw(MOSTLY_THE_FIRST)]]
        self.engagements = [
            self.lab.engage_with(self.rows[self.suites.index(suite)], self.lab.runner_ids[manager])
            for manager, suite in enumerate(self.served)
        ]
        self.states = [suite.state for suite in self.suites]
        self.submit(draw)
        self.claim(draw)

    # --- people ---

    def submit(self, draw: Draw) -> None:
        suite = self._suite(draw)
        count = draw((1, 1, 2, 3))
        if len(suite.tasks) >= MAX_TASKS:
            return
        if self._refused(suite.submit, lambda: self.lab.submit_to(suite.id, count)):
            return
        for ref in self.answer:
            suite.tasks[ref.id] = Work(ref.id, ref.uuid, suite)

    def submit_to_both(self, draw: Draw) -> None:
        """One that is cancelled keeps the others from changing as well."""
        if any(len(suite.tasks) >= MAX_TASKS for suite in self.suites):
            return

        def expect() -> None:
            for suite in self.suites:
                suite.refuse_cancelled()
            for suite in self.suites:
                suite.submit()

        ids = [suite.id for suite in self.suites][:: draw((1, -1))]
        if self._refused(expect, lambda: self.lab.submit_to_all(ids)):
            return
        by_id = {suite.id: suite for suite in self.suites}
        for suite_id, uuid, task_id in zip(
            ids, self.answer, self.lab.ids_of(self.answer), strict=True
        ):
            by_id[suite_id].tasks[task_id] = Work(task_id, uuid, by_id[suite_id])

    def close(self, draw: Draw) -> None:
        suite = self._suite(draw)
        self._same(suite.close, lambda: close_suite(actor=SYSTEM, suite=self._row(suite)))

    def reopen(self, draw: Draw) -> None:
        suite = self._suite(draw)
        self._same(suite.reopen, lambda: reopen_suite(actor=SYSTEM, suite=self._row(suite)))

    def pause(self, draw: Draw) -> None:
        suite = self._suite(draw)
        self._same(suite.pause, lambda: pause_suite(actor=SYSTEM, suite=self._row(suite)))

    def resume(self, draw: Draw) -> None:
        suite = self._suite(draw)
        self._same(suite.resume, lambda: resume_suite(actor=SYSTEM, suite=self._row(suite)))

    def cancel(self, draw: Draw) -> None:
        suite, stop_running = self._suite(draw), draw(EITHER)
        if suite.state is not SuiteState.CANCELLED and draw(EITHER):
            return  # an end too early is an example that says little

        def ask() -> tuple[list[int], list[int]]:
            done = cancel_suite(
                actor=SYSTEM,
                suite=self._row(suite),
                reason="a test",
                stop_running=stop_running,
                batch=BATCH,
            )
            return done.ended_ids, done.stopping_ids

        self._same(lambda: suite.cancel(stop_running=stop_running), ask)

    def rerun(self, draw: Draw) -> None:
        suite, outcome = (
            self._suite(draw),
            draw((Outcome.FAILED, Outcome.FAILED, Outcome.SUCCEEDED)),
        )
        expected: list[Work] = []

        def expect() -> None:
            expected.extend(suite.rerunnable(outcome))
            if expected:
                suite.submit()

        def ask() -> Any:
            row = self._row(suite)
            return rerun_tasks(actor=SYSTEM, user=self.lab.creator, suite=row, outcomes=[outcome])

        if len(suite.tasks) >= MAX_TASKS or self._refused(expect, ask):
            return
        made = self.answer.tasks
        assert [ref.rerun_of for ref in made] == [task.uuid for task in expected]
        for task, ref in zip(expected, made, strict=True):
            task.is_rerun = True
            suite.tasks[ref.id] = Work(ref.id, ref.uuid, suite)

    def delete(self, draw: Draw) -> None:
        """Whatever had a task is history. An empty one stays too: a manager serves it."""
        suite = self._suite(draw)
        if suite.submits:
            row = self._row(suite)
            self._same(suite.delete, lambda: delete_suite(actor=SYSTEM, suite=row))

    # --- managers ---

    def claim(self, draw: Draw) -> None:
        self._claim(draw(RUNNERS), draw(WANTS))

    def report(self, draw: Draw) -> None:
        one = pick(self._held() or self.attempts or [None], draw(RECENT))
        if one is None:
            self.claim(draw)
        else:
            self._settle(*one, None if draw(RARELY) else draw(ENDS))

    def work_it_off(self, draw: Draw) -> None:
        """Nothing is left to do, unless the suite hands out nothing: now an end may come."""
        for manager in RUNNERS:
            self._claim(manager, MAX_TASKS)
            for one in self._held():
                self._settle(*one, draw(ENDS))
        for word in draw(ENDINGS):
            getattr(self, word)(draw)

    def _held(self) -> list[tuple[int, int, Work]]:
        return [one for one in self.attempts if one[2].attempt_id == one[0] and one[2].holder]

    def _claim(self, manager: int, want: int) -> None:
        suite, runner_id = self.served[manager], self.lab.runner_ids[manager]
        expected = suite.claimable(want)
        claim = self.lab.claim_with(self.engagements[manager], runner_id, want)
        assert [given.task_id for given in claim.tasks] == [task.id for task in expected]
        for task, given in zip(expected, claim.tasks, strict=True):
            task.holder, task.attempt_id = runner_id, given.attempt_id
            self.attempts.append((given.attempt_id, runner_id, task))

    def _settle(self, attempt_id: int, runner_id: int, task: Work, outcome: Outcome | None) -> None:
        is_held = task.attempt_id == attempt_id and task.holder is not None
        answer = self._report(attempt_id, runner_id, outcome)
        assert answer is (ReportAnswer.OK if is_held else ReportAnswer.STALE_ATTEMPT)
        if is_held:
            task.holder = None
            task.outcome = Outcome.CANCELLED if task.is_told else outcome

    def forge(self, draw: Draw) -> None:
        """The other manager speaks: nothing happens."""
        if self.attempts:
            attempt_id, runner_id, _ = pick(self.attempts, draw(RECENT))
            [other] = [one for one in self.lab.runner_ids if one != runner_id]
            assert self._report(attempt_id, other, draw(ENDS)) is ReportAnswer.FORBIDDEN

    def _report(self, attempt_id: int, runner_id: int, outcome: Outcome | None) -> ReportAnswer:
        """None gives the task back without a word."""
        if outcome is None:
            return self.lab.report(SettleOp.ABORT, attempt_id, runner_id, charge=False).answer
        return self.lab.commit(attempt_id, runner_id, outcome).answer

    # --- truth ---

    def compare(self) -> None:
        if not self.suites:
            return
        ids = [suite.id for suite in self.suites]
        suites, active, archived = self.lab.rows(ids)
        assert suites == [suite.row() for suite in self.suites]
        tasks = list(all_tasks(self.suites))
        assert active == [_active(task) for task in tasks if task.outcome is None]
        assert archived == [
            [task.id, task.suite.id, task.outcome.code]
            for task in tasks
            if task.outcome is not None
        ]
        assert self.lab.counts_of(ids) == {suite.id: suite.counts() for suite in self.suites}
        for number, suite in enumerate(self.suites):
            before, self.states[number] = self.states[number], suite.state
            assert before is suite.state or can_move(SUITE, before, suite.state)

    # --- parts ---

    def _suite(self, draw: Draw) -> Suite:
        return self.suites[draw(MOSTLY_THE_FIRST)]

    def _row(self, suite: Suite) -> TaskSuite:
        return self.rows[self.suites.index(suite)]

    def _same(self, expect: Callable[[], Any], ask: Callable[[], Any]) -> None:
        """The model and the service say the same, or both refuse."""
        expected: list[Any] = []
        if not self._refused(lambda: expected.append(expect()), ask):
            assert self.answer == expected[0]

    def _refused(self, expect: Callable[[], Any], ask: Callable[[], Any]) -> bool:
        """Whether both refuse; otherwise what the service said is in `answer`."""
        try:
            expect()
        except Refused:
            error = _error_of(ask)
            is_input = isinstance(error, InvalidInput) and error.code is ErrorCode.SUITE_CANCELLED
            assert is_input or isinstance(error, InvalidTransition | Conflict)
            return True
        self.answer = ask()
        return False


def _active(task: Work) -> list[object]:
    return [task.id, task.suite.id, task.holder, task.is_told]


def _error_of(ask: Callable[[], Any]) -> DomainError | None:
    try:
        ask()
    except DomainError as error:
        return error
    return None


@contextmanager
def campaigns() -> Iterator[None]:
    """The world in which the machine runs."""
    SuiteMachine.lab = SuiteLab()
    try:
        yield
    finally:
        SuiteMachine.lab.close()
        del SuiteMachine.lab
