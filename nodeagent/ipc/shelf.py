"""The shelf: attempts that wait for a worker, and workers that wait for an attempt.

Pure and single-threaded; desk owns one and holds its lock around every call. Both sides are FIFO,
so nobody starves and the order of the coordinator's claim is kept.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence

from mitosis_protocol.ipc import WorkItem
from nodeagent.ipc.server import WorkerKey


class Shelf:
    """Work in order, and the workers parked in front of it."""

    def __init__(self) -> None:
        self._items: deque[WorkItem] = deque()
        self._parked: dict[WorkerKey, int] = {}  # worker -> id of its request, in order of arrival
        self._dismissed: set[WorkerKey] = set()
        self.is_serving = True

    def __len__(self) -> int:
        return len(self._items)

    @property
    def parked_count(self) -> int:
        return len(self._parked)

    def put(self, items: Sequence[WorkItem], *, at_front: bool = False) -> None:
        """Behind what is there, or before it in the order given."""
        if at_front:
            self._items.extendleft(reversed(items))
        else:
            self._items.extend(items)

    def take(self) -> WorkItem | None:
        """The next item for a worker that asks now; None means: park it."""
        return self._items.popleft() if self._items and self.is_serving else None

    def withdraw(self, at_most: int) -> list[int]:
        """Attempts taken back, newest first."""
        count = min(max(at_most, 0), len(self._items))
        return [self._items.pop().task.task_id for _ in range(count)]

    def remove(self, attempt_ids: Collection[int]) -> list[int]:
        """Attempts among these that were here; the order of the rest stays."""
        wanted = frozenset(attempt_ids)
        gone = [item.task.task_id for item in self._items if item.task.task_id in wanted]
        if gone:
            self._items = deque(item for item in self._items if item.task.task_id not in wanted)
        return gone

    def park(self, worker: WorkerKey, request_id: int) -> None:
        """A newer request of the same worker replaces the old one and goes to the end."""
        self._parked.pop(worker, None)
        self._parked[worker] = request_id

    def unpark(self, worker: WorkerKey) -> int | None:
        """The request it was parked with."""
        return self._parked.pop(worker, None)

    def matches(self) -> Iterator[tuple[WorkerKey, int, WorkItem]]:
        """Pair parked workers with items while there are both."""
        while self._parked and self._items and self.is_serving:
            worker = next(iter(self._parked))
            yield worker, self._parked.pop(worker), self._items.popleft()

    def dismiss(self, worker: WorkerKey) -> None:
        self._dismissed.add(worker)

    def is_dismissed(self, worker: WorkerKey) -> bool:
        return worker in self._dismissed

    def forget(self, worker: WorkerKey) -> None:
        """It has exited."""
        self._parked.pop(worker, None)
        self._dismissed.discard(worker)
