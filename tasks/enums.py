"""Enumerations that only the task tables store; what crosses a wire is in mitosis_protocol.enums.

Codes are written by the SQL in tasks/sql as numbers, so they may never be reassigned.
"""

from mitosis_protocol.enums import CodedEnum


class AttemptEnd(CodedEnum):
    """Why an attempt is closed. An open attempt has none."""

    COMMITTED = "committed", 0  # its report ended the task
    LOST = "lost", 1  # the lease ran out; its report is still welcome until the next claim
    FAILED = "failed", 2  # it crashed or its runner gave it up
    RELEASED = "released", 3  # handed back before the command could have started
    REVOKED = "revoked", 4  # fenced by the coordinator: silent after a cancel, or far too long
    RETRIED = "retried", 5  # its report was a failure that the retry policy covers


class EventKind(CodedEnum):
    """What happened to a task; one row of `task_events` each."""

    SUBMITTED = "submitted", 0
    RELEASED = "released", 1  # its upstream tasks are done, it may be claimed
    CLAIMED = "claimed", 2
    STARTED = "started", 3
    FINISHING = "finishing", 4
    REQUEUED = "requeued", 5
    FAILURE = "failure", 6  # a crash was charged, the runner keeps the attempt
    CANCEL_REQUESTED = "cancel_requested", 7
    ENDED = "ended", 8
    ADOPTED = "adopted", 9  # a lost attempt was found alive
    CHANGED = "changed", 10
    PROGRESS = "progress", 11  # feedback of the running command
