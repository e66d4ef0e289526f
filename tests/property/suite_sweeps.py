"""The first half of the suite machine: what time and the periodic jobs do to suites.

People and managers are in suite_machine.py.
"""

from typing import ClassVar

from mitosis_protocol.enums import Outcome, SuiteState
from suites.services.sweeps import close_idle, complete_drained, stop_failing
from tasks.services.counts import fold_counts
from tasks.services.suite_cancel import end_leftovers
from tests.property.choices import EITHER, Draw
from tests.property.moves import MovesMachine
from tests.property.suite_lab import SuiteLab
from tests.property.suite_model import IDLE_S, Suite, all_tasks

BATCH = 100
# Never the limits themselves, and never within ten seconds of them.
PAUSES_S = (30, 30, 120, 1110)


class SweepMoves(MovesMachine):
    """The suites of one example, of which there are none before it began."""

    # Made once for many examples by whoever runs the machine.
    lab: ClassVar[SuiteLab]

    def __init__(self) -> None:
        super().__init__()
        self.lab.begin()
        self.suites: list[Suite] = []

    def time_passes(self, draw: Draw) -> None:
        seconds = draw(PAUSES_S)
        self.lab.age([suite.id for suite in self.suites], seconds)
        for suite in self.suites:
            suite.since_submit += seconds
            suite.since_opened += seconds

    def close_the_idle(self, _: Draw) -> None:
        idle = [suite for suite in self.suites if suite.is_idle()]
        assert sorted(close_idle(idle_s=IDLE_S, batch=BATCH)) == [suite.id for suite in idle]
        for suite in idle:
            suite.close()

    def complete_the_drained(self, _: Draw) -> None:
        drained = [suite for suite in self.suites if suite.is_drained()]
        assert sorted(complete_drained(batch=BATCH)) == [suite.id for suite in drained]
        for suite in drained:
            suite.complete()

    def stop_the_failing(self, _: Draw) -> None:
        failing = [suite for suite in self.suites if suite.is_failing()]
        assert sorted(stop_failing(batch=BATCH)) == [suite.id for suite in failing]
        for suite in failing:
            suite.is_blocked = True

    def end_the_leftovers(self, draw: Draw) -> None:
        is_due = draw(EITHER)
        left = [
            task
            for task in all_tasks(self.suites)
            if task.suite.state is SuiteState.CANCELLED and task.waits and is_due
        ]
        assert end_leftovers(batch=BATCH, age_s=0 if is_due else 3600) == len(left)
        for task in left:
            task.outcome = Outcome.CANCELLED

    def fold_the_counts(self, _: Draw) -> None:
        fold_counts(max_rows=BATCH)
