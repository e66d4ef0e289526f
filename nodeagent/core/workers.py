"""Worker slots: spawned, watched, given tasks by the shelf, respawned with backoff, dismissed.

An event of an earlier generation of a slot never touches the present one. Called by
nodeagent.state and nodeagent.core.engagement.
"""

from typing import Final

from mitosis_protocol import ipc
from mitosis_protocol.manager_reports import TaskReport
from nodeagent.core import reports
from nodeagent.core.attempts import Attempt, Stage
from nodeagent.core.custody import forget, refuse_permit, stop_if_unwanted, try_again
from nodeagent.core.model import FOREVER, Engagement, Model, Slot, SlotPhase, Step
from nodeagent.effects import DismissWorker, KillWorker, Publish, SpawnWorker
from nodeagent.events import (
    OfferTaken,
    SpawnFailed,
    WorkerExited,
    WorkerKey,
    WorkerParked,
    WorkerReady,
    WorkerSpawned,
)
from nodeagent.failures import ExitReason

HOPELESS_STARTS: Final = 5  # of one slot, while no worker of the suite ever connected
_UNKNOWN: Final = ExitReason()


def advance(m: Model, engaged: Engagement) -> None:
    """As many workers as the suite wants, while it executes."""
    if m.now < m.staff_at:
        return
    m.staff_at = FOREVER
    for local_id in range(engaged.worker_count):
        slot = m.slots.get(local_id)
        if slot is None:
            slot = m.slots[local_id] = Slot(local_id)
        if slot.phase is not SlotPhase.WAITING:
            continue
        if m.now >= slot.due_at:
            _spawn(m, engaged, slot)
        else:
            m.staff_at = min(m.staff_at, slot.due_at)
    if len(m.slots) > engaged.worker_count:
        for slot in list(m.slots.values()):
            if slot.local_id >= engaged.worker_count:
                dismiss(m, slot)


def on_offer_taken(m: Model, event: OfferTaken) -> None:
    attempt = m.ledger.attempts.get(event.attempt_id)
    slot = find_slot(m, event.worker)
    if attempt is None or attempt.stage is not Stage.SHELVED:
        if slot is not None and attempt is not None and attempt in (slot.attempt, slot.ahead):
            return  # said twice
        m.out.append(Publish(ipc.CancelTask(attempt_id=event.attempt_id, why="revoked")))
        return
    m.ledger.move(attempt, Stage.HANDED)
    if slot is None:
        # Its death was heard of first; whether the command was begun nobody knows.
        attempt.worker_id = event.worker.local_id
        _report_death(m, attempt, _UNKNOWN)
        return
    attempt.worker_id = slot.local_id
    if event.is_ahead and slot.attempt is not None and slot.ahead is None:
        slot.ahead = attempt
        stop_if_unwanted(m, attempt)
        return
    if slot.attempt is not None:
        _empty_hands(m, slot)
    _unpark(m, slot)
    slot.attempt = attempt
    if attempt.wish is not None:
        stop_if_unwanted(m, attempt)
    elif attempt.item is not None and not attempt.item.needs_permit:
        reports.note_start(m, attempt)


def on_parked(m: Model, event: WorkerParked) -> None:
    slot = find_slot(m, event.worker)
    if slot is None:
        return
    if slot.attempt is not None:
        _empty_hands(m, slot)
    if not slot.is_parked and not slot.is_leaving:
        slot.is_parked = True
        m.parked_count += 1


def on_ready(m: Model, event: WorkerReady) -> None:
    slot = find_slot(m, event.worker)
    if slot is None or slot.phase is not SlotPhase.STARTING:
        return
    slot.phase = SlotPhase.READY
    if slot.is_leaving:
        return
    slot.kill_by = FOREVER
    m.ready_count += 1
    engaged = m.engagement
    if engaged is None:
        return
    if event.trouble is not None:
        engaged.trouble = ("limits", event.trouble)
    else:
        engaged.has_been_ready = True


def on_spawned(m: Model, event: WorkerSpawned) -> None:
    slot = find_slot(m, event.worker)
    if slot is None or slot.is_killed:
        # Killed while it was being started: now there is something to kill.
        m.out.append(KillWorker(event.worker))


def on_spawn_failed(m: Model, event: SpawnFailed) -> None:
    slot = find_slot(m, event.worker)
    if slot is not None:
        m.warn("worker.spawn_failed", worker=slot.local_id, reason=event.reason)
        _vacate(m, slot, f"a worker could not be started: {event.reason}")


def on_exited(m: Model, event: WorkerExited) -> None:
    slot = find_slot(m, event.worker)
    if slot is None:
        return
    attempt, ahead = slot.attempt, slot.ahead
    slot.attempt = slot.ahead = None
    if attempt is not None:
        m.reports.permits.pop(attempt.attempt_id, None)
        m.reports.to_permit.pop(attempt.attempt_id, None)
        attempt.tokens.clear()
        if attempt.stage is Stage.HANDED:
            _report_death(m, attempt, event.reason)
    if ahead is not None:
        _take_back(m, ahead)
    if not slot.is_leaving:
        why = event.reason.describe()
        m.warn("worker.died", worker=slot.local_id, reason=why, had_task=attempt is not None)
    _vacate(m, slot, f"workers end before they connect: {event.reason.describe()}")


def tick(m: Model) -> None:
    for slot in m.slots.values():
        if not slot.is_present:
            continue
        attempt = slot.attempt
        if attempt is not None and attempt.stop_by is not None and m.now >= attempt.stop_by:
            m.warn("worker.does_not_let_go", worker=slot.local_id, task_id=attempt.attempt_id)
            attempt.stop_by = None
            kill(m, slot)
        elif slot.is_leaving and attempt is None and slot.kill_by == FOREVER:
            slot.kill_by = m.now + m.settings.leave_s
        elif m.now >= slot.kill_by:
            m.warn("worker.overdue", worker=slot.local_id, is_leaving=slot.is_leaving)
            kill(m, slot)


def dismiss(m: Model, slot: Slot) -> None:
    """Leave after the task in hand; not spawned again."""
    if slot.is_leaving:
        return
    if not slot.is_present:
        del m.slots[slot.local_id]
        return
    _unpark(m, slot)
    m.ready_count -= slot.phase is SlotPhase.READY
    slot.is_leaving = True
    slot.kill_by = m.now + m.settings.leave_s if slot.attempt is None else FOREVER
    m.out.append(DismissWorker(slot.key))


def dismiss_all(m: Model) -> None:
    for slot in list(m.slots.values()):
        dismiss(m, slot)


def kill(m: Model, slot: Slot) -> None:
    slot.is_killed = True
    slot.kill_by = m.now + m.settings.leave_s  # once more, should it still be there
    m.out.append(KillWorker(slot.key))


def find_slot(m: Model, key: WorkerKey) -> Slot | None:
    """The slot in which this very process lives."""
    slot = m.slots.get(key.local_id)
    if slot is None or slot.generation != key.generation or slot.phase is SlotPhase.WAITING:
        return None
    return slot


def _spawn(m: Model, engaged: Engagement, slot: Slot) -> None:
    m.generation += 1
    slot.generation = m.generation
    slot.phase = SlotPhase.STARTING
    slot.started_at = m.now
    slot.kill_by = m.now + m.settings.connect_s
    slot.is_killed = slot.has_worked = False
    m.out.append(SpawnWorker(slot.key, engaged.assignment_id, engaged.suite))


def _vacate(m: Model, slot: Slot, hopeless: str) -> None:
    """Its process is gone: spawn it again, later each time it lives only shortly."""
    _unpark(m, slot)
    was_ready, slot.phase = slot.phase is SlotPhase.READY, SlotPhase.WAITING
    slot.kill_by = FOREVER
    engaged = m.engagement
    if slot.is_leaving or engaged is None or engaged.step is not Step.EXECUTING:
        m.ready_count -= was_ready and not slot.is_leaving
        del m.slots[slot.local_id]
        m.staff_at = m.now  # one that left may be wanted again
        return
    m.ready_count -= was_ready
    has_lived = was_ready and m.now - slot.started_at >= m.settings.quick_death_s
    if slot.has_worked or has_lived:
        slot.quick_deaths = 0
    delay = min(m.settings.respawn_max_s, 2.0 ** (slot.quick_deaths - 1))
    slot.due_at = m.now + (delay if slot.quick_deaths else 0.0)
    m.staff_at = min(m.staff_at, slot.due_at)
    slot.quick_deaths += 1
    if not engaged.has_been_ready and slot.quick_deaths >= HOPELESS_STARTS:
        engaged.trouble = ("command", hopeless)


def _unpark(m: Model, slot: Slot) -> None:
    if slot.is_parked:
        slot.is_parked = False
        m.parked_count -= 1


def skip(m: Model, slot: Slot) -> None:
    """It runs what it was given ahead and has said nothing of the one before."""
    attempt = slot.attempt
    slot.attempt, slot.ahead = slot.ahead, None
    if attempt is not None:
        _lose(m, attempt)


def _empty_hands(m: Model, slot: Slot) -> None:
    """It asks for work and has said nothing of what it had (or does not wait for the answer)."""
    in_hand = (slot.attempt, slot.ahead)
    slot.attempt = slot.ahead = None
    for attempt in in_hand:
        if attempt is not None:
            _lose(m, attempt)


def _lose(m: Model, attempt: Attempt) -> None:
    if attempt.stage is Stage.HANDED:
        refuse_permit(m, attempt.attempt_id)
        _report_death(m, attempt, _UNKNOWN)


def _take_back(m: Model, attempt: Attempt) -> None:
    """Its worker died with the one before: this one was never begun."""
    if m.is_forced:
        forget(m, attempt, "dropped")
    else:
        try_again(m, attempt)


def _report_death(m: Model, attempt: Attempt, reason: ExitReason) -> None:
    """Any end without a report counts as one crash; the coordinator decides what follows."""
    if attempt.wish == "revoked":
        forget(m, attempt, "revoked")
    elif m.is_forced:
        # We killed it ourselves. Not named in the next inventory, it goes back to the queue.
        forget(m, attempt, "dropped")
    else:
        report_crash(
            m, attempt, f"the worker ended without a report: {reason.describe()}", reason.signal
        )


def report_crash(m: Model, attempt: Attempt, why: str, signal: int | None) -> None:
    line = TaskReport(
        task_id=attempt.attempt_id,
        op="failure",
        op_id=m.draw_id(),
        reason=why[: reports.MAX_REASON_CHARS],
        signal=signal,
        worker_local_id=attempt.worker_id,
    )
    reports.store(m, attempt, line, None)
