"""Tasks pinned to a runner that will never run them: it left for good, or it refused them.

What `resource_refs` name lives on one worker alone. When that is gone, waiting helps nobody: the
tasks end as failed, with the reason. Run by a periodic job, and by the coordinator when beat is
silent.
"""

from typing import Final

import structlog

from core.locks import try_advisory_xact_lock
from tasks.rows import SettleRow
from tasks.statements import Statement

log = structlog.get_logger(__name__)

_END: Final = Statement(SettleRow, "settle/unreachable", "settle/end_failed", "settle/tail")
_REASON: Final = "the worker that has its resources is gone or cannot run it"


def end_unreachable(*, max_tasks: int) -> int:
    """End them; answers how many. Somebody else sweeping: nothing is done."""
    with try_advisory_xact_lock("sweep.unreachable") as is_ours:
        rows = _END.fetch_sync({"max_tasks": max_tasks, "reason": _REASON}) if is_ours else []
    ended = [row.task_id for row in rows if row.answer == "end"]
    if ended:
        log.warning("tasks.unreachable", count=len(ended), task_ids=ended[:20])
    return len(ended)
