"""Listens to events and effects and keeps the figures of the next heartbeat.

The core knows nothing of metrics: what they need can be seen from what happens and what is done.
Made by agent; sampled by correspondence with every heartbeat.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mitosis_protocol import ipc
from mitosis_protocol.durations import parse_nanoseconds
from mitosis_protocol.enums import Outcome
from mitosis_protocol.from_manager import Heartbeat, ManagerMetrics
from mitosis_protocol.to_manager import HeartbeatAck, SuiteDrained, Welcome
from nodeagent import effects, events
from nodeagent.effects import Effect
from nodeagent.events import Event, WorkerKey
from nodeagent.ipc.server import IpcStats
from nodeagent.metrics.collect import MetricsCollector
from nodeagent.metrics.facts import LeaseFacts, PoolFacts, WorkerFacts
from nodeagent.metrics.suite_meter import SuiteMeter
from nodeagent.metrics.task_meter import TaskMeasure, TaskMeter

_STOPPED: Final = (Outcome.CANCELLED, Outcome.UPSTREAM_FAILED)
_NS_PER_S: Final = 1e9


class _Worker:
    def __init__(self, now: float) -> None:
        self.since = now
        self.attempt_id: int | None = None
        self.ahead_id: int | None = None  # begun when the one in hand has ended
        self.taken_at = now
        self.completed = 0

    def let_go(self, attempt_id: int, now: float) -> None:
        if attempt_id != self.ahead_id:
            self.attempt_id, self.taken_at = self.ahead_id, now
        self.ahead_id = None


class Measurements:
    """One agent's life in figures."""

    def __init__(self, data_dir: Path, ipc_stats: Callable[[], IpcStats]) -> None:
        now = time.monotonic()
        self._collector = MetricsCollector(data_dir, started=now)
        self._ipc_stats = ipc_stats
        self._tasks = TaskMeter()
        self._suite = SuiteMeter(now)
        self._workers: dict[WorkerKey, _Worker] = {}
        self._spawned = 0
        self._crashed = 0
        self._assignment_id: int | None = None
        self._assigned_at = now
        self._beat_at = now
        self._lease_s = 0.0
        self._renewals = 0
        self._early_breaks = 0
        self._by_event: dict[type[Event], Callable[[Any, float], None]] = {
            events.WorkerSpawned: self._on_spawned,
            events.WorkerExited: self._on_exited,
            events.OfferTaken: self._on_taken,
            events.WorkerAsked: self._on_asked,
            events.FrameReceived: self._on_frame,
            events.HookDone: self._on_hook_done,
            events.SlotsReleased: lambda _, now: self._suite.enter("cleaning", now),
        }
        self._by_effect: dict[type[Effect], Callable[[Any, float], None]] = {
            effects.PlanSlots: self._on_plan,
            effects.SpawnWorker: self._on_spawn,
            effects.SettleDebt: lambda _, now: self._suite.enter("idle", now),
            effects.SendHeartbeat: self._on_beat,
        }

    def note_event(self, event: Event, now: float) -> None:
        note = self._by_event.get(type(event))
        if note is not None:
            note(event, now)

    def note_effect(self, effect: Effect, now: float) -> None:
        note = self._by_effect.get(type(effect))
        if note is not None:
            note(effect, now)

    def sample(self, beat: Heartbeat) -> ManagerMetrics:
        """The metrics of one heartbeat."""
        now = time.monotonic()
        suite = self._suite.facts(now)
        lease = LeaseFacts(
            assignment_id=beat.assignment_id,
            suite_uuid=suite.suite_uuid if beat.assignment_id is not None else None,
            age_s=now - self._assigned_at if beat.assignment_id is not None else 0.0,
            remaining_s=max(0.0, self._beat_at + self._lease_s - now),
            renewals=self._renewals,
            early_breaks=self._early_breaks,
        )
        return self._collector.sample(
            now, self._pool_facts(now), self._tasks.facts(now), self._ipc_stats(), lease, suite
        )

    def _pool_facts(self, now: float) -> PoolFacts:
        workers = [
            WorkerFacts(
                local_id=key.local_id,
                state="idle" if worker.attempt_id is None else "executing",
                attempt_id=worker.attempt_id,
                tasks_completed=worker.completed,
                uptime_s=now - worker.since,
            )
            for key, worker in sorted(self._workers.items(), key=lambda item: item[0].local_id)
        ]
        return PoolFacts(spawned=self._spawned, crashed=self._crashed, workers=workers)

    def _on_spawned(self, event: events.WorkerSpawned, now: float) -> None:
        self._spawned += 1
        self._workers[event.worker] = _Worker(now)

    def _on_exited(self, event: events.WorkerExited, _now: float) -> None:
        worker = self._workers.pop(event.worker, None)
        if event.reason.code != 0 or (worker is not None and worker.attempt_id is not None):
            self._crashed += 1

    def _on_taken(self, event: events.OfferTaken, now: float) -> None:
        worker = self._workers.get(event.worker)
        if worker is None:
            return
        if event.is_ahead and worker.attempt_id is not None:
            worker.ahead_id = event.attempt_id
        else:
            worker.attempt_id, worker.taken_at = event.attempt_id, now

    def _on_asked(self, event: events.WorkerAsked, now: float) -> None:
        message = event.message
        worker = self._workers.get(event.token.worker)
        if worker is None or not isinstance(message, ipc.FinishTask | ipc.CrashTask | ipc.DropTask):
            return
        if isinstance(message, ipc.FinishTask):
            worker.completed += 1
            self._tasks.record(_measure(message, now - worker.taken_at), now)
        worker.let_go(message.attempt_id, now)

    def _on_frame(self, event: events.FrameReceived, _now: float) -> None:
        message = event.message
        if isinstance(message, Welcome | HeartbeatAck):
            self._lease_s = parse_nanoseconds(message.lease) / _NS_PER_S
            self._renewals += isinstance(message, HeartbeatAck)
        elif isinstance(message, SuiteDrained):
            self._early_breaks += 1

    def _on_hook_done(self, event: events.HookDone, _now: float) -> None:
        is_preparation = event.phase == "preparation"
        self._suite.hook_ended(
            is_preparation=is_preparation, is_ok=event.kind == "ok", tries=event.tries
        )

    def _on_plan(self, effect: effects.PlanSlots, now: float) -> None:
        if effect.assignment_id != self._assignment_id:
            self._assignment_id, self._assigned_at = effect.assignment_id, now
            self._suite.begin(effect.suite.uuid, now)
            self._tasks.begin_suite()

    def _on_spawn(self, _effect: effects.SpawnWorker, now: float) -> None:
        if self._suite.facts(now).phase == "preparing":
            self._suite.enter("executing", now)

    def _on_beat(self, _effect: effects.SendHeartbeat, now: float) -> None:
        self._beat_at = now


def _measure(message: ipc.FinishTask, held_s: float) -> TaskMeasure:
    if message.outcome in _STOPPED:
        outcome = "cancelled"
    elif message.outcome in (None, Outcome.SUCCEEDED) and message.exit_status == 0:
        outcome = "succeeded"
    else:
        outcome = "failed"
    facts = message.facts
    return TaskMeasure(
        outcome=outcome,  # type: ignore[arg-type]  # one of the three above
        execution_s=_number(facts.get("seconds")) or held_s,
        peak_memory_bytes=int(_number(facts.get("memory_peak_bytes"))),
        cpu_s=_number(facts.get("cpu_s")),
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
