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


class Undeliverable(Exception):
    """The worker cannot be reached any more."""


class Line(Protocol):
    """Where the answer to one request goes. Raises Undeliverable."""

    def send(self, data: bytes) -> None: ...


class Asked:
    """One unanswered request."""

    __slots__ = ("line", "settles", "wants_next")

    def __init__(self, line: Line, settles: int | None, *, wants_next: bool = False) -> None:
        self.line = line
        self.settles = settles  # the attempt that is no longer the worker's once this is answered
        self.wants_next = wants_next  # the answer may bring an attempt along


class Customer:
    """One attached worker as the desk knows it."""

    def __init__(self, key: WorkerKey, directory: Path) -> None:
        self.key = key
        self.payloads = Payloads(directory, "agent")
        self.asked: dict[tuple[ServiceName, int], Asked] = {}
        self.held: set[int] = set()
        self.heard_at: float | None = None


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
