"""What a direct worker counts about itself, under the names of docs/control-plane.md. Pure.

Fed by `machine` with every event and what followed from it; read by `exposition`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from nodeagent.direct import events as ev

# As the scheduler's own: from a round trip on loopback to an hour's work.
BUCKETS_MS: Final = (
    10, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 60_000, 600_000, 3_600_000,
)  # fmt: skip


class Histogram:
    """How often a duration was at most each of the buckets."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_MS) + 1)
        self._sum_ms = 0.0

    def observe(self, took_ms: float) -> None:
        self._counts[bisect_left(BUCKETS_MS, took_ms)] += 1
        self._sum_ms += took_ms

    def lines(self, name: str, labels: str) -> Iterator[str]:
        bounds = [*map(str, BUCKETS_MS), "+Inf"]
        for bound, count in zip(bounds, accumulate(self._counts), strict=True):
            yield f'{name}_bucket{{{labels},le="{bound}"}} {count}'
        yield f"{name}_sum{{{labels}}} {self._sum_ms:g}"
        yield f"{name}_count{{{labels}}} {sum(self._counts)}"


class Numbers:
    """Counts of one process; they begin with it."""

    def __init__(self) -> None:
        self.heartbeats_sent = 0
        self.heartbeats_degraded = 0
        self._running: dict[int, tuple[str, float]] = {}
        self._durations: dict[str, Histogram] = {}

    def watch(self, event: ev.Event, effects: Iterable[ev.Effect], now: float) -> None:
        """A task begins when it is handed to a lane and ends with the word about its result."""
        if isinstance(event, ev.Ended):
            self._end(event.result.task_id, now)
        elif isinstance(event, ev.HandedBack):
            self._running.pop(event.attempt_id, None)
        for effect in effects:
            if isinstance(effect, ev.Start):
                started = effect.dispatch
                self._running[started.task_id] = started.node_type, now
            elif isinstance(effect, ev.Settled | ev.Stop):
                # Somebody else's by now; or stopped, and then its length says nothing.
                self._running.pop(effect.attempt_id, None)

    def _end(self, attempt_id: int, now: float) -> None:
        began = self._running.pop(attempt_id, None)
        if began is not None:
            node_type, began_at = began
            took = self._durations.setdefault(node_type, Histogram())
            took.observe((now - began_at) * 1000)

    def page(self, *, inflight: int) -> str:
        """In the text format of Prometheus."""
        return "".join(f"{line}\n" for line in self._lines(inflight))

    def _lines(self, inflight: int) -> Iterator[str]:
        yield "# TYPE inflight_tasks gauge"
        yield f"inflight_tasks {inflight}"
        yield "# TYPE heartbeat_sent_total counter"
        yield f"heartbeat_sent_total {self.heartbeats_sent}"
        yield "# TYPE heartbeat_degraded_total counter"
        yield f"heartbeat_degraded_total {self.heartbeats_degraded}"
        yield "# TYPE task_duration_ms histogram"
        for node_type, took in sorted(self._durations.items()):
            yield from took.lines("task_duration_ms", f'node_type="{node_type}"')
