"""Tasks that ended per minute over the last hour. Minutes that are over are read once a process.

Only streams ask for it: the first look may read all that ended in an hour, and a page must not wait
for that.
"""

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import dropwhile
from typing import Final

from console.selectors.statements import fetch
from console.viewer import Viewer
from core.clock import now

MINUTES: Final = 60
_MINUTE: Final = timedelta(minutes=1)
# A statement writes its time before it commits: younger minutes may still grow.
_SETTLED_AFTER: Final = timedelta(minutes=2)
_SHORTEST: Final = timedelta(seconds=20)  # a mean over less would jump
_MAX_VIEWERS: Final = 200  # remembered; whoever is forgotten is read anew


@dataclass(frozen=True, slots=True)
class Minute:
    """How many tasks ended in the minute that begins `at`, and how many of them badly."""

    at: datetime
    ended: int
    failed: int


_settled: Final[dict[Viewer, dict[datetime, Minute]]] = {}
_lock: Final = threading.Lock()


def read_minutes(viewer: Viewer) -> list[Minute]:
    """The last hour, minute by minute, the present one last; quiet minutes are zeros."""
    moment = now()
    present = moment.replace(second=0, microsecond=0)
    wanted = [present - _MINUTE * back for back in range(MINUTES - 1, -1, -1)]
    with _lock:
        known = {at: row for at, row in _settled.get(viewer, {}).items() if at >= wanted[0]}
    missing = [at for at in wanted if at not in known]
    rows = fetch("overview/minutes", Minute, {"since": missing[0], "group_ids": viewer.group_ids()})
    found = {at: Minute(at, 0, 0) for at in missing} | known | {row.at: row for row in rows}
    with _lock:
        if len(_settled) >= _MAX_VIEWERS:
            _settled.clear()
        _settled[viewer] = {at: found[at] for at in wanted if moment - at >= _SETTLED_AFTER}
    return [found[at] for at in wanted]


def per_minute(minutes: list[Minute], moment: datetime, *, over: int = 5) -> float:
    """The mean of the newest minutes, the present one included, since work began in them: somebody
    who has just started a campaign looks at this number.
    """
    at_work = list(dropwhile(lambda one: not one.ended, minutes[-over - 1 :]))
    if not at_work:
        return 0.0
    passed = max(moment - at_work[0].at, _SHORTEST) / _MINUTE
    return sum(one.ended for one in at_work) / passed
