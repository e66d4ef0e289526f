"""Which attempts one session of a direct worker holds, and what it knows of each.

A memory of the socket, not the truth: that is the database, and the attempt is its fence.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from websocket.worker_streams import Stream

MAX_ENDED: Final = 1024  # attempts that ended here, remembered to recognise late repetitions


@dataclass(eq=False, slots=True)
class Attempt:
    """An attempt in this worker's hands."""

    id: int
    node_type: str = "unknown"  # of one that was begun in an earlier session
    task_uuid: UUID | None = None
    stream: Stream = field(default_factory=Stream)
    dispatched_at: float | None = None  # on the loop's clock
    dispatch_id: str | None = None  # until it is acked
    said: int = 0  # number of the newest message to the worker about it
    is_ending: bool = False  # its result is being written down
    was_told_to_stop: bool = False
    tail: asyncio.Task[None] | None = None  # the newest of its messages being handled

    @property
    def corr(self) -> str:
        return str(self.id)

    def next_number(self) -> int:
        self.said += 1
        return self.said


class Holdings:
    """The attempts of one session by id."""

    def __init__(self) -> None:
        self._held: dict[int, Attempt] = {}
        self._ended: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, attempt_id: object) -> bool:
        return attempt_id in self._held

    def find(self, attempt_id: int) -> Attempt | None:
        return self._held.get(attempt_id)

    def take(self, attempt: Attempt) -> Attempt:
        self._held[attempt.id] = attempt
        return attempt

    def drop(self, attempt_id: int) -> Attempt | None:
        """The worker does not hold it any more."""
        return self._held.pop(attempt_id, None)

    def end(self, attempt_id: int, last_number: int) -> Attempt | None:
        """Its result was taken; a repetition of anything before is recognised for a while."""
        self._ended[attempt_id] = last_number
        while len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)
        return self.drop(attempt_id)

    def has_heard(self, attempt_id: int, number: int) -> bool:
        """Whether that message of an attempt that ended here was taken."""
        return number <= self._ended.get(attempt_id, 0)

    def ids(self) -> Iterable[int]:
        return list(self._held)

    def in_motion(self) -> Iterable[int]:
        """Not to be judged by an inventory: on the way to the worker, or back from it."""
        return [
            attempt.id
            for attempt in self._held.values()
            if attempt.is_ending or attempt.dispatch_id is not None
        ]
