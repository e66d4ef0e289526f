"""Who is calling, once proven; and the memory that spares hot paths a query per call.

An Identity comes from a verified token alone, never from a body or an address. Built by
accounts.authentication (users) and runners.authentication (workers, managers, direct workers).
"""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import datetime

from mitosis_protocol.enums import TokenKind


@dataclass(frozen=True, slots=True)
class Identity:
    """`id` is the row in `users` or `runners`; `subject` the user name or the runner's uuid."""

    kind: TokenKind
    id: int
    subject: str
    generation: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Standing:
    """What the database says about a subject: which generation of its tokens still counts."""

    id: int
    generation: int
    is_active: bool


@dataclass(slots=True)
class StandingCache:
    """Remembers standings for seconds, so that a revocation reaches every process in that time.

    The caller stamps an entry with the clock *before* its query: age counts from the oldest moment
    the answer can stem from. Safe to share between threads.
    """

    clock: Callable[[], float] = time.monotonic
    max_entries: int = 100_000  # about 20 MB; beyond it the oldest entries are asked for again
    _entries: dict[Hashable, tuple[float, Standing]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, key: Hashable, *, max_age_s: float) -> Standing | None:
        with self._lock:
            entry = self._entries.get(key)
        if entry is None or self.clock() - entry[0] >= max_age_s:
            return None
        return entry[1]

    def store(self, key: Hashable, standing: Standing, *, asked_at: float) -> None:
        with self._lock:
            self._entries.pop(key, None)
            self._entries[key] = (asked_at, standing)
            while len(self._entries) > self.max_entries:
                del self._entries[next(iter(self._entries))]

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._entries.pop(key, None)
