"""Forget the event log of tasks that ended long ago. Called by tasks.periodic and the standby.

A task's events stay while it is active and for the policy's days after its end; one slice is one
set-based statement under an advisory lock, so a crash half-way costs nothing.
"""

from typing import Final

from core.locks import try_advisory_xact_lock
from tasks import store
from tasks.rows import TrimRow

_START: Final = TrimRow(trimmed=0, xid="0", id=0, is_end=False)


def trim_events(*, keep_s: float, max_events: int, max_slices: int) -> int:
    """Delete what is due in at most so many slices, oldest first; answers how many events went.

    Somebody else at it: nothing is done. The next run finds what this one left.
    """
    trimmed = 0
    position = _START
    for _ in range(max_slices):
        found = _trim_slice(position, keep_s=keep_s, max_events=max_events)
        if found is None:
            break
        trimmed += found.trimmed
        if found.is_end:
            break
        position = found
    return trimmed


def _trim_slice(after: TrimRow, *, keep_s: float, max_events: int) -> TrimRow | None:
    """None: the log ends here, or somebody else is at it."""
    with try_advisory_xact_lock("sweep.trim_events") as is_ours:
        if not is_ours:
            return None
        rows = store.TRIM_EVENTS.fetch_sync(
            {"xid": after.xid, "id": after.id, "keep_s": keep_s, "max_events": max_events}
        )
        return rows[0] if rows else None
