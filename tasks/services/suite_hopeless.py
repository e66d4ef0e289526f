"""Tasks of suites that nobody will run any more: every eligible manager has given them up.

They end as failed, so that the suite can complete (DESIGN 4.1). One idempotent statement under an
advisory lock; run by a periodic job, and by the coordinator when beat is silent.
"""

from typing import Final

import structlog

from core.locks import try_advisory_xact_lock
from tasks.rows import SettleRow
from tasks.statements import Statement

log = structlog.get_logger(__name__)

_END_HOPELESS: Final = Statement(SettleRow, "suite/hopeless", "settle/end_failed", "settle/tail")
_REASON: Final = "every manager that may run it has given it up"
# Given-up tasks of one look; the next sweep sees the rest, oldest first.
LOOKED_AT_PER_TASK: Final = 10


def end_hopeless(*, max_tasks: int) -> int:
    """End them; answers how many. Somebody else sweeping: nothing is done."""
    with try_advisory_xact_lock("sweep.hopeless") as is_ours:
        if not is_ours:
            return 0
        rows = _END_HOPELESS.fetch_sync(
            {
                "max_tasks": max_tasks,
                "max_looked_at": LOOKED_AT_PER_TASK * max_tasks,
                "reason": _REASON,
            }
        )
    ended = [row for row in rows if row.answer == "end"]
    if ended:
        log.warning("tasks.hopeless", count=len(ended), task_ids=[r.task_id for r in ended[:20]])
    return len(ended)
