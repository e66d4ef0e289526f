"""One attached worker as the desk knows it: what it asked, what it holds, how it is reached.

And the figures of all of them together. Used by desk and the two servers.
"""

import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Final, Protocol

from nodeagent.ipc.payloads import Payloads
from nodeagent.ipc.server import IpcStats, ServiceName, WorkerKey
from nodeagent.ipc.shelf import Shelf

# Of a task, with its way here: what waits behind such a one does not wait long.
QUICK_S: Final = 0.02


class Undeliverable(Exception):
    """The worker cannot be reached any more."""


class Line(Protocol):
    """Where the answer to one request goes. Raises Undeliverable."""

    def send(self, data: bytes, *, is_urgent: bool = True) -> None:
        """Unless it is urgent, a transport that can spare the worker being woken does so."""
        ...


class Asked:
    """One unanswered request."""

    __slots__ = ("is_patient", "line", "settles", "wants_next")

    def __init__(
        self,
        line: Line,
        settles: int | None,
        *,
        wants_next: bool = False,
        is_patient: bool = False,
    ) -> None:
        self.line = line
        self.settles = settles  # the attempt that is no longer the worker's once this is answered
        self.wants_next = wants_next  # the answer may bring attempts along
        self.is_patient = is_patient  # the worker looks for the answer by itself


class Customer:
    """One attached worker as the desk knows it."""

    def __init__(self, key: WorkerKey, directory: Path) -> None:
        self.key = key
        self.payloads = Payloads(directory, "agent")
        self.asked: dict[tuple[ServiceName, int], Asked] = {}
        self.held: set[int] = set()
        self.heard_at: float | None = None
        self.is_quick = False  # its last task took no time worth speaking of
        self._busy_since = 0.0

    def begins(self, now: float) -> None:
        """It has something to run and had nothing before."""
        self._busy_since = now

    def ends(self, now: float) -> None:
        """It has finished one; another that it holds begins at once."""
        self.is_quick = now - self._busy_since <= QUICK_S
        self._busy_since = now


_COUNTED: Final = (
    *("requests", "fetches", "reports", "heartbeats"),
    *("answers", "published", "refused", "undelivered"),
)


def count_up(
    counts: Counter[str],
    latencies_s: Collection[float],
    shelf: Shelf,
    customers: Collection[Customer],
) -> IpcStats:
    """Everything as it is now."""
    ranked = sorted(latencies_s)
    now = time.monotonic()
    heard = [one.heard_at for one in customers if one.heard_at is not None]
    return IpcStats(
        workers=len(customers),
        parked=shelf.parked_count,
        on_shelf=len(shelf),
        spilled=counts["spilled"] + sum(one.payloads.spilled for one in customers),
        fetch_p50_us=_percentile(ranked, 0.50),
        fetch_p95_us=_percentile(ranked, 0.95),
        fetch_p99_us=_percentile(ranked, 0.99),
        silent_s=now - min(heard, default=now),
        **{name: counts[name] for name in _COUNTED},
    )


def _percentile(ranked: list[float], share: float) -> float:
    if not ranked:
        return 0.0
    return round(ranked[min(len(ranked) - 1, int(share * len(ranked)))] * 1e6, 1)
