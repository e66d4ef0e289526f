"""The agent's functional core: an event in, effects out; no clock, socket, file or process.

Driven by the shell (nodeagent.agent, through nodeagent.shell.mailbox). The work is done by the
functions of nodeagent.core on one model; this file says which event goes where.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import ManagerState
from nodeagent import events
from nodeagent.core import (
    asks,
    custody,
    engagement,
    farewell,
    invariants,
    reports,
    session,
    stopping,
    supply,
    workers,
)
from nodeagent.core.attempts import Attempt, Stage
from nodeagent.core.model import Model, Settings, Step
from nodeagent.core.requests import (
    Beating,
    Fetching,
    Greeting,
    Purpose,
    Reporting,
    Resolving,
    Returning,
    Submitting,
    Uploading,
    Writing,
)
from nodeagent.effects import Effect


class AgentState:
    """One agent, from `Booted` to `Exit`."""

    def __init__(self, process_id: UUID, *, settings: Settings | None = None) -> None:
        self.model = Model(process_id, settings or Settings())

    @property
    def state(self) -> ManagerState:
        return self.model.state

    def handle(self, event: events.Event, now: float) -> list[Effect]:
        """What follows from `event`, in order; `now` is monotonic seconds."""
        m = self.model
        m.now = now
        out: list[Effect] = []
        m.out = out
        if m.is_over:
            return out
        _HANDLERS[type(event)](m, event)
        if m.is_forced:
            stopping.advance_forced(m)
            return out
        engaged = m.engagement
        is_hot = type(event) in _HOT and engaged is not None and engaged.step is Step.EXECUTING
        if not is_hot or m.session.is_beat_due:
            _advance(m)
        supply.advance(m)
        return out

    def check_invariants(self) -> None:
        """Raises AssertionError; for tests."""
        invariants.check(self.model)


def _advance(m: Model) -> None:
    if m.engagement is not None:
        engagement.advance(m, m.engagement)
    if m.engagement is None and not m.is_over:
        stopping.advance_idle(m)
    if m.session.is_beat_due:
        session.beat(m)


def _on_booted(m: Model, event: events.Booted) -> None:
    m.started_at = m.now
    m.debts.extend(event.debts)
    for line in event.results:
        if line.op_id is None:
            continue
        m.reports.lines[line.op_id] = line
        attempt = m.ledger.attempts.get(line.task_id)
        if attempt is None:
            attempt = Attempt(line.task_id, None, Stage.FINISHED, None)
            m.ledger.receive(attempt)
        attempt.op_id, attempt.report = line.op_id, line


def _on_tick(m: Model, event: events.Tick) -> None:
    workers.tick(m)
    session.tick(m)
    reports.tick(m)


def _on_flush(m: Model, event: events.FlushDue) -> None:
    m.reports.is_flush_scheduled = False
    reports.flush(m)


def _on_shutdown(m: Model, event: events.ShutdownAsked) -> None:
    stopping.stop(m, "asked to stop", is_forced=event.is_forced)


def _on_disk(m: Model, event: events.DiskNoted) -> None:
    m.has_room = not event.trouble
    if event.trouble:
        m.warn("disk.full", reason=event.trouble)
    else:
        m.note("disk.has_room")


def _on_link_up(m: Model, event: events.LinkUp) -> None:
    _drop_link(m)
    session.on_link_up(m, event)


def _on_link_lost(m: Model, event: events.LinkLost) -> None:
    _drop_link(m)


def _drop_link(m: Model) -> None:
    session.on_link_lost(m)
    for purpose in m.requests.take_all():
        _failed(m, purpose, None)


def _on_timeout(m: Model, event: events.RequestTimedOut) -> None:
    purpose = m.requests.open.pop(event.request_id, None)
    if purpose is not None:
        _failed(m, purpose, None)


def _on_frame(m: Model, event: events.FrameReceived) -> None:
    if m.session.is_up:
        _FRAMES[type(event.message)](m, event.message)


def _on_error(m: Model, message: tm.Error) -> None:
    m.warn("coordinator.refused", code=message.code.value, message=message.message)
    if message.request_id is None:
        return
    purpose = m.requests.open.pop(message.request_id, None)
    if purpose is not None:
        _failed(m, purpose, message)


def _failed(m: Model, purpose: Purpose, error: tm.Error | None) -> None:
    """A request without its answer; `error` says why, None that nobody knows."""
    is_refused = error is not None
    is_retryable = error is None or error.is_retryable
    match purpose:
        case Reporting():
            reports.on_failed(m, purpose, is_refused=is_refused)
        case Fetching():
            supply.on_fetch_failed(m, purpose, is_refused=is_refused, is_retryable=is_retryable)
        case Returning():
            supply.on_return_failed(m, purpose, is_refused=is_refused)
        case Writing():
            farewell.on_letter_failed(m, purpose, is_refused=is_refused, is_retryable=is_retryable)
        case Uploading() | Submitting() | Resolving():
            asks.on_failed(m, purpose, error)
        case Greeting():
            session.on_greeting_failed(m)
        case Beating():
            pass  # the next one says everything again


def _on_tasks(m: Model, message: tm.TasksAvailable) -> None:
    supply.on_tasks(m, message.request_id, message.tasks, has_more=message.has_more)


def _on_task(m: Model, message: tm.TaskAvailable) -> None:
    tasks = [] if message.task is None else [message.task]
    supply.on_tasks(m, message.request_id, tasks, has_more=False)


def _on_results(m: Model, message: tm.ReportsAccepted) -> None:
    purpose = m.requests.open.get(message.request_id)
    if isinstance(purpose, Reporting):
        del m.requests.open[message.request_id]
        reports.on_accepted(m, purpose, message.results)
    elif isinstance(purpose, Returning):
        del m.requests.open[message.request_id]
        supply.on_returned(m, purpose, message.results)


def _on_assigned(m: Model, message: tm.SuiteAssigned) -> None:
    engagement.offer(m, message.assignment_id, message.suite_spec)


def _on_pause(m: Model, message: tm.Pause | tm.Resume) -> None:
    engaged = m.engagement
    if engaged is not None and engaged.suite.uuid == message.suite_uuid:
        engaged.is_paused = isinstance(message, tm.Pause)


def _on_report_ack(m: Model, message: tm.TaskReportAck) -> None:
    asks.on_report_ack(m, message.request_id, message)


_FRAMES: Final[Mapping[type[tm.ToManager], Callable[[Model, Any], None]]] = {
    tm.Welcome: session.on_welcome,
    tm.HeartbeatAck: session.on_ack,
    tm.SuiteAssigned: _on_assigned,
    tm.TaskAvailable: _on_task,
    tm.TasksAvailable: _on_tasks,
    tm.TaskReportAck: _on_report_ack,
    tm.ReportsAccepted: _on_results,
    tm.ResourcesResolved: asks.on_resolved,
    tm.SuiteReportAck: farewell.on_letter_answered,
    tm.CancelTask: session.on_cancel_task,
    tm.CancelSuite: engagement.on_cancel,
    tm.SuiteDrained: session.on_drained,
    tm.Pause: _on_pause,
    tm.Resume: _on_pause,
    tm.ConfigUpdate: session.on_config,
    tm.Shutdown: session.on_shutdown,
    tm.Error: _on_error,
    tm.TasksReady: supply.on_ready,
    tm.ReturnSurplus: supply.on_surplus,
}

_HANDLERS: Final[Mapping[type[events.Event], Callable[[Model, Any], None]]] = {
    events.Booted: _on_booted,
    events.Tick: _on_tick,
    events.FlushDue: _on_flush,
    events.ShutdownAsked: _on_shutdown,
    events.HostTroubled: stopping.on_troubled,
    events.DiskNoted: _on_disk,
    events.LinkUp: _on_link_up,
    events.LinkLost: _on_link_lost,
    events.FrameReceived: _on_frame,
    events.RequestTimedOut: _on_timeout,
    events.OfferTaken: workers.on_offer_taken,
    events.WorkerParked: workers.on_parked,
    events.WorkerReady: workers.on_ready,
    events.WorkerAsked: asks.on_asked,
    events.Withdrawn: custody.on_withdrawn,
    events.TaskRead: asks.on_task_read,
    events.SlotsPlanned: engagement.on_planned,
    events.SlotsRefused: engagement.on_slots_refused,
    events.WorkerSpawned: workers.on_spawned,
    events.SpawnFailed: workers.on_spawn_failed,
    events.WorkerExited: workers.on_exited,
    events.SlotsReleased: engagement.on_released,
    events.HookDone: engagement.on_hook_done,
    events.DebtOwed: engagement.on_owed,
    events.ResultStored: reports.on_stored,
    events.ResultRefused: reports.on_refused,
}

# Thousands a second, and while a suite executes nothing but the supply follows from them.
_HOT: Final = frozenset(
    {events.OfferTaken, events.WorkerParked, events.WorkerAsked, events.ResultStored}
)
