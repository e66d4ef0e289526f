"""Telling managers what a scheduler pass decided; hints, sent when the transaction commits.

Called by whoever ran the pass. A manager that misses one learns of it from its next heartbeat.
"""

from core.faults import fault
from managers.enums import ReleaseReason
from managers.services.scheduler import PassResult
from managers.services.session_suites import tell_engaged, tell_leaving


def tell_of_pass(result: PassResult) -> None:
    """New engagements, and those that have to end, by reason."""
    if result.engaged:
        fault("suite.assign_committed_not_sent")
        tell_engaged([one.assignment_id for one in result.engaged])
    leaving: dict[ReleaseReason, list[int]] = {}
    for assignment_id, reason in result.released:
        leaving.setdefault(reason, []).append(assignment_id)
    for reason, assignment_ids in leaving.items():
        tell_leaving(assignment_ids, reason=reason.value)
