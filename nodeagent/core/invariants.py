"""What holds between any two events. Called by AgentState.check_invariants, in tests.

Each line is a promise of the agent; the property test tries to break them.
"""

from mitosis_protocol.enums import ManagerState
from mitosis_protocol.limits import MAX_TASKS_PER_FETCH
from nodeagent.core.attempts import Attempt, Stage
from nodeagent.core.model import Model, Slot, SlotPhase, Step

_REPORTED = (Stage.STORING, Stage.FINISHED)
_BEFORE_DEBT = (Step.PLANNING, Step.OWING)


def check(m: Model) -> None:
    """Raises AssertionError."""
    for attempt in m.ledger.attempts.values():
        _check_attempt(m, attempt)
    for slot in m.slots.values():
        _check_slot(m, slot)
    _check_counts(m)
    _check_outbox(m)
    _check_engagement(m)


def _check_attempt(m: Model, attempt: Attempt) -> None:
    """One place for each, and the places agree."""
    attempt_id, stage = attempt.attempt_id, attempt.stage
    holders = [slot for slot in m.slots.values() if attempt in (slot.attempt, slot.ahead)]
    assert len(holders) <= 1, f"{attempt_id} is in two hands"
    if stage is Stage.HANDED:
        assert holders, f"{attempt_id} is handed to nobody"
        assert holders[0].local_id == attempt.worker_id
    elif stage is not Stage.STORING:
        assert not holders, f"{attempt_id} is {stage} and still in a hand"
    assert (attempt.op_id is not None) == (stage in _REPORTED), f"{attempt_id} in {stage}"
    in_storing = attempt.op_id is not None and attempt.op_id in m.reports.unstored
    in_outbox = attempt.op_id is not None and attempt.op_id in m.reports.lines
    assert in_storing == (stage is Stage.STORING)
    assert in_outbox == (stage is Stage.FINISHED)
    assert not (attempt.tokens and stage is not Stage.STORING)
    assert attempt_id not in m.supply.to_return or stage is Stage.RETURNING
    assert attempt_id not in m.reports.permits or stage is Stage.HANDED
    assert attempt_id not in m.reports.starts or stage is Stage.HANDED
    assert attempt.wish != "revoked" or stage in {Stage.SHELVED, Stage.HANDED, Stage.STORING}


def _check_slot(m: Model, slot: Slot) -> None:
    if slot.attempt is not None:
        assert slot.is_present, "a dead worker holds an attempt"
        assert m.ledger.attempts.get(slot.attempt.attempt_id) is slot.attempt
    if slot.ahead is not None:
        assert slot.attempt is not None, "something ahead of nothing"
        assert slot.ahead is not slot.attempt
        assert slot.ahead.stage is Stage.HANDED
        assert slot.ahead.attempt_id not in m.reports.starts, "told as begun and still ahead"
    if slot.is_present and not m.is_forced:
        engaged = m.engagement
        assert engaged is not None, "a worker without an engagement"
        assert engaged.step in {Step.EXECUTING, Step.DRAINING} or (
            engaged.step is Step.CLEARING and slot.is_leaving
        ), f"a worker while {engaged.step}"


def _check_counts(m: Model) -> None:
    ledger = m.ledger
    assert ledger.shelved_count == len(ledger.in_stage(Stage.SHELVED))
    gone = sum(ledger.gone_counts.values())
    assert ledger.received_count == len(ledger.attempts) + gone, "an attempt got lost"
    live = [slot for slot in m.slots.values() if not slot.is_leaving]
    assert m.parked_count == sum(slot.is_parked for slot in live)
    assert m.ready_count == sum(slot.phase is SlotPhase.READY for slot in live)
    asked = sum(max(0, claim.want - len(claim.received)) for claim in m.supply.claims)
    assert m.supply.asked_count == asked
    engaged = m.engagement
    if engaged is not None:
        workers = max(len(m.slots), engaged.worker_count)
        # Crashed ones come back to the shelf beside what was fetched, at most one per worker.
        high = max(engaged.prefetch, engaged.planned.worker_schedule.task_prefetch_count)
        most = 2 * workers + high + MAX_TASKS_PER_FETCH
        assert ledger.shelved_count <= most, "more on the shelf than the high mark allows"


def _check_outbox(m: Model) -> None:
    reports = m.reports
    for op_id in (*reports.queue, *reports.later):
        assert op_id in reports.lines, "a line is sent that is not in the outbox"
    for op_id, attempt in reports.unstored.items():
        assert attempt.op_id == op_id
    for op_id in reports.refused:
        assert op_id in reports.unstored
    for attempt_id in reports.to_permit:
        assert attempt_id in reports.permits
    assert reports.in_flight >= 0
    for attempt_id in m.supply.to_return:
        assert attempt_id in m.ledger.attempts


def _check_engagement(m: Model) -> None:
    engaged = m.engagement
    if engaged is None:
        assert m.state in {ManagerState.IDLE, ManagerState.CLEANUP}
        return
    if engaged.step in _BEFORE_DEBT:
        assert not engaged.is_prepared, "prepared before the debt was owed"
    has_hooks = engaged.suite.env_preparation is not None or engaged.suite.env_cleanup is not None
    if engaged.step in {Step.PREPARING, Step.EXECUTING, Step.DRAINING} and has_hooks:
        assert engaged.is_owed, "prepared without a debt"
    if m.is_accepting:
        assert engaged.step is Step.EXECUTING
    if engaged.is_leaving:
        assert engaged.step is not Step.EXECUTING, "leaving and still executing"
