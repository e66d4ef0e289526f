"""Which actions make sense now: pages show the others greyed out, and the services refuse them.

Part of a live region, so that the buttons follow what others do; who may act at all is decided by
the page.
"""

from typing import Final

from mitosis_protocol.enums import DesiredState, SuiteState
from mitosis_protocol.transitions import SUITE, can_move
from suites.models import TaskSuite
from tasks.models import ArchivedTask
from tasks.selectors import Task

_MOVES: Final = {
    "close": SuiteState.CLOSED,
    "reopen": SuiteState.OPEN,
    "cancel": SuiteState.CANCELLED,
}
_OF_WISH: Final = {
    DesiredState.ACTIVE: ("drain", "quarantine", "shutdown"),
    DesiredState.DRAINING: ("undrain", "quarantine", "shutdown"),
    DesiredState.QUARANTINED: ("release", "shutdown"),
    DesiredState.SHUTDOWN: (),
}


def suite_offers(suite: TaskSuite, *, failed: int) -> tuple[str, ...]:
    """Verbs of the suite's page, `rerun` among them."""
    if suite.state is SuiteState.CANCELLED:
        return ()
    is_held = suite.paused_at is not None or suite.blocked_at is not None
    pausing = ("resume",) if is_held else ("pause",)
    moves = (verb for verb, target in _MOVES.items() if can_move(SUITE, suite.state, target))
    again = ("rerun",) if failed else ()
    return (*pausing, *moves, *again)


def manager_offers(wish: DesiredState) -> tuple[str, ...]:
    return _OF_WISH[wish]


def task_offers(task: Task) -> tuple[str, ...]:
    """A task without a suite is submitted again, not rerun."""
    if isinstance(task, ArchivedTask):
        return ("rerun",) if task.suite_id is not None else ()
    return () if task.cancel_requested_at is not None else ("cancel",)
