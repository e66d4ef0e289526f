"""The state machine: two runners, a few tasks, every statement in any order, stale and forged.

After each step the database must say what the model says, row by row. Each example has a mood,
which says what happens more often in it. Run by test_queue_machine.py and, with mutated SQL, by
tests/mutants.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from msgspec.structs import replace

from mitosis_protocol.enums import ReportAnswer
from tasks.rows import Report, SettleOp
from tests.property.choices import (
    EITHER,
    GRANTS,
    KINDS,
    MOODS,
    OPS,
    OUTCOMES,
    RARELY,
    RECENT,
    RUNNERS,
    Draw,
    draw_with,
    is_kind,
    pick,
    report_on,
)
from tests.property.machine_claims import ClaimMoves
from tests.property.machine_lab import MachineLab
from tests.property.records import Attempt
from tests.property.truth import check_counts, check_logs, check_rows

LONG_S = 3600.0
dice = st.integers(0, 2**24 - 1)  # drawn evenly; Hypothesis prefers small ones of more bits


class QueueMachine(ClaimMoves):
    """Adds what runners report and what the coordinator does by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[Attempt, Report]] = []
        self.moves: list[str] = []

    # Something to talk about from the first step on.
    @initialize(dice=dice)
    def begin(self, dice: int) -> None:
        draw = draw_with(dice)
        mood = draw(sorted(MOODS))
        self.moves = MOODS[mood]
        in_suite = draw(EITHER)
        self._submit(draw, in_suite=in_suite)
        self._submit(draw, in_suite=in_suite and mood == "graphs")
        self.claim(draw)

    @rule(dice=dice)
    def step(self, dice: int) -> None:
        draw = draw_with(dice)
        getattr(self, draw(self.moves))(draw)

    # --- reports: any attempt ever made, by anybody ---

    def start(self, draw: Draw) -> None:
        for attempt, runner_id in self._speaker(draw):
            self._start(attempt, runner_id)

    def progress(self, draw: Draw) -> None:
        for attempt, runner_id in self._speaker(draw):
            self._progress(attempt, runner_id)

    def finish(self, draw: Draw) -> None:
        for attempt, runner_id in self._speaker(draw):
            self._finish(attempt, runner_id, cancelled=draw(RARELY))

    def adopt(self, draw: Draw) -> None:
        for attempt, runner_id in self._speaker(draw):
            self._adopt(attempt, runner_id, is_engaged=draw(EITHER))

    def _start(self, attempt: Attempt, runner_id: int) -> None:
        expected = self.model.start(attempt, runner_id)
        assert self.lab.start(attempt.id, runner_id) is expected

    def _progress(self, attempt: Attempt, runner_id: int) -> None:
        expected = self.model.progress(attempt, runner_id)
        assert self.lab.progress(attempt.id, runner_id) is expected

    def _finish(self, attempt: Attempt, runner_id: int, *, cancelled: bool) -> None:
        expected = self.model.finish(attempt, runner_id, cancelled=cancelled)
        assert self.lab.finish(attempt.id, runner_id, cancelled=cancelled) is expected

    def _adopt(self, attempt: Attempt, runner_id: int, *, is_engaged: bool) -> None:
        is_engaged = is_engaged and runner_id == self.runners[0]
        expected = self.model.adopt(attempt, runner_id, engaged=is_engaged)
        assignment_id = self.lab.assignment_id if is_engaged else None
        assert self.lab.adopt([attempt.id], runner_id, assignment_id=assignment_id) == [expected]

    def _speak_up(self, draw: Draw, attempt: Attempt, runner_id: int) -> None:
        """One who was not listening, or lies, says two things about an attempt at once."""
        for word in draw((("adopt", "progress"), ("start", "adopt"), ("finish",), ("start",))):
            if word == "adopt":
                self._adopt(attempt, runner_id, is_engaged=draw(EITHER))
            elif word == "finish":
                self._finish(attempt, runner_id, cancelled=draw(RARELY))
            elif word == "start":
                self._start(attempt, runner_id)
            else:
                self._progress(attempt, runner_id)

    def report(self, draw: Draw) -> None:
        for attempt, runner_id in self._speaker(draw):
            report = report_on(
                attempt, runner_id, draw(OPS), draw(OUTCOMES), is_retried=draw(EITHER)
            )
            report = replace(report, charge=draw(EITHER), exclude=draw(RARELY))
            self._deliver(draw, attempt, report, backs_off=draw(RARELY))

    def repeat_a_report(self, draw: Draw) -> None:
        if self.sent:
            self._send(*pick(self.sent, draw(RECENT)))
        else:
            self.report(draw)

    def reuse_an_op_id(self, draw: Draw) -> None:
        """The op_id of one report on another attempt is not that report's repetition."""
        for attempt, runner_id in self._speaker(draw):
            report = report_on(attempt, runner_id, draw(OPS))
            if self.sent:
                report = replace(report, op_id=pick(self.sent, draw(RECENT))[1].op_id)
            self._send(attempt, report)

    def report_twice_at_once(self, draw: Draw) -> None:
        """Two reports on one attempt in one statement: one counts, the other comes again."""
        for attempt, runner_id in self._speaker(draw):
            outcome = draw(OUTCOMES)
            one, two = (report_on(attempt, runner_id, draw(OPS), outcome) for _ in range(2))
            late = self.model.judge(attempt, two)
            expected = [
                self.model.report(attempt, one),
                ReportAnswer.RETRY_LATER if late is ReportAnswer.OK else late,
            ]
            assert [settled.answer for settled in self.lab.settle([one, two])] == expected

    def mix_up_attempts(self, draw: Draw) -> None:
        """A runner gives a task back, takes it again and speaks for the attempt that is over."""
        held = [task for task in self.model.tasks.values() if task.is_held]
        if not held:
            self.claim(draw)
            return
        task = pick(held, draw(RECENT))
        old = task.attempt
        report = report_on(old, old.runner, SettleOp.ABORT)
        self._send(old, replace(report, charge=False))
        request = self._request(self.runners.index(old.runner), uuid.uuid4(), 3)
        self._claim(request, task.in_suite)
        self.focus = old
        self._speak_up(draw, old, old.runner)

    def _send(self, attempt: Attempt, report: Report, *, backs_off: bool = False) -> None:
        expected = self.model.report(attempt, report, backs_off=backs_off)
        [settled] = self.lab.settle([report], backoff_s=LONG_S if backs_off else 0)
        assert settled.answer is expected
        self.sent.append((attempt, report))

    def _deliver(self, draw: Draw, attempt: Attempt, report: Report, *, backs_off: bool) -> None:
        """Networks deliver at least once: often the same report comes again at once."""
        self._send(attempt, report, backs_off=backs_off)
        if draw(EITHER):
            self._send(attempt, report)
        if not attempt.task.is_held and draw(EITHER):
            self._speak_up(draw, attempt, report.runner_id)

    # --- the coordinator and the network ---

    def cancel(self, draw: Draw) -> None:
        task, held = self._task(draw), draw(EITHER)
        self.focus = task.attempt or self.focus
        expected = self.model.cancel(task, held=held)
        assert self.lab.cancel(task.id, held=held) == [expected]

    def go_silent(self, draw: Draw) -> None:
        self._go_silent(draw(RUNNERS))

    def connect(self, draw: Draw) -> None:
        self._connect(draw(RUNNERS))

    def reap(self, _: Draw) -> None:
        assert sorted(self.lab.reap()) == self.model.reap()

    def lose(self, draw: Draw) -> None:
        """Silence and its end in one step: what follows a loss is worth more tries."""
        holders = {task.runner for task in self.model.tasks.values() if task.is_held}
        runner = draw([one for one in RUNNERS if self.runners[one] in holders] or RUNNERS)
        self._go_silent(runner)
        held = [task.attempt for task in self.model.held_by(self.runners[runner])]
        self.reap(draw)
        self._connect(runner)
        if held:
            self.focus = held[-1]
            # Before its owner is back, somebody else tries.
            if draw(RARELY):
                self._speak_up(draw, held[-1], self.runners[1 - runner])

    def _go_silent(self, runner: int) -> None:
        self.lab.expire_lease(self.runners[runner])
        self.model.silent.add(self.runners[runner])

    def remove(self, draw: Draw) -> None:
        runner_id, charge = self.runners[draw(RUNNERS)], draw(EITHER)
        expected = self.model.remove(runner_id, charge=charge)
        assert sorted(self.lab.reap([runner_id], charge=charge)) == expected

    def change_the_grant(self, draw: Draw) -> None:
        runner_id = self.runners[draw(RUNNERS)]
        role, consent = draw(GRANTS)
        self.lab.set_grant(runner_id, role=role, consent=consent)
        is_barred = not (role and consent)
        (self.model.barred.add if is_barred else self.model.barred.discard)(runner_id)

    def the_backoff_ends(self, _: Draw) -> None:
        delayed = [task for task in self.model.tasks.values() if task.is_delayed]
        self.lab.end_backoff([task.id for task in delayed])
        for task in delayed:
            task.is_delayed = False

    def end_overdue(self, draw: Draw) -> None:
        running = [task for task in self.model.tasks.values() if task.is_held and task.is_started]
        for task in running[:1] if draw(RARELY) else []:
            self.lab.overrun(task.id)
            task.is_overdue = True
        expected = self.model.end_overdue()
        assert self.lab.end_overdue(cancel_silence_s=0) == ["end"] * expected

    def compare_inventories(self, draw: Draw) -> None:
        runner_id = self.runners[draw(RUNNERS)]
        said = list(self.model.attempts.values())[:: 2 if draw(EITHER) else 1]
        expected = self.model.inventory(runner_id, said)
        assert self.lab.inventory(runner_id, [one.id for one in said]) == expected

    # --- other sessions ---

    def come_while_another_session_is_at_work(self, draw: Draw) -> None:
        """Nobody waits for a row: who is entitled comes again, everybody else is told why not."""
        for attempt, runner_id in self._speaker(draw):
            report = report_on(attempt, runner_id, draw(OPS))
            deserved = self.model.judge(attempt, report)
            is_gone = attempt.task.is_ended
            with self.lab.locked(attempt.task.id):
                [settled] = self.lab.settle([report])
                assert self.lab.cancel(attempt.task.id) == ["gone" if is_gone else "busy"]
            is_entitled = deserved is ReportAnswer.OK
            assert settled.answer is (ReportAnswer.RETRY_LATER if is_entitled else deserved)

    def another_session_writes(self, _: Draw) -> None:
        self.lab.toggle_writer()

    def read_the_log(self, _: Draw) -> None:
        self.lab.read_log()

    # --- truth ---

    @invariant()
    def the_database_says_what_the_model_says(self) -> None:
        check_rows(self.lab, self.model)

    def teardown(self) -> None:
        self.lab.finish_writing()
        check_counts(self.lab)
        check_logs(self.lab)

    def _speaker(self, draw: Draw) -> Iterator[tuple[Attempt, int]]:
        """An attempt and who speaks for it, once there is one; until then somebody claims."""
        attempts = list(self.model.attempts.values())
        if not attempts:
            self.claim(draw)
            return
        found = {kind: [one for one in attempts if is_kind(one, kind)] for kind in set(KINDS)}
        attempt = pick(found[draw([kind for kind in KINDS if found[kind]])], draw(RECENT))
        if self.focus is not None and draw(EITHER):
            attempt = self.focus
        self.focus, is_forged = attempt, draw(RARELY)
        [other] = [runner for runner in self.runners if runner != attempt.runner]
        yield attempt, other if is_forged else attempt.runner


@contextmanager
def laboratory() -> Iterator[None]:
    """The world in which the machine runs."""
    QueueMachine.lab = MachineLab()
    try:
        yield
    finally:
        QueueMachine.lab.close()
        del QueueMachine.lab
