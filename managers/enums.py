"""Enumerations that only the manager tables store; what crosses a wire is in mitosis_protocol."""

from mitosis_protocol.enums import CodedEnum


class PreparationTrouble(CodedEnum):
    """Why a host could not be prepared for a suite."""

    COMMAND = "command", 0  # the hook ended with an error
    TIMEOUT = "timeout", 1  # the hook ran into its timeout
    NETWORK = "network", 2  # resources could not be fetched before the retry deadline
    LIMITS = "limits", 3  # limits that were asked for cannot be enforced on the host


class ReleaseReason(CodedEnum):
    """Why an engagement ended or has to end."""

    DONE = "done", 0  # nothing left to do, and it lingered long enough
    MADE_ROOM = "made_room", 1  # another suite waits for the host
    OUTRANKED = "outranked", 2  # idle, and a suite of higher priority has work
    CANCELLED = "cancelled", 3  # the suite was cancelled
    BLOCKED = "blocked", 4  # the suite cannot succeed for now
    PREPARATION = "preparation", 5  # the host could not be prepared
    DRAIN = "drain", 6  # an operator wants the host empty, quarantined or gone
    LEASE = "lease", 7  # the manager has not been heard of
    INELIGIBLE = "ineligible", 8  # the group lost its role, or the host its tags
    REVOKED = "revoked", 9  # the manager's registration has ended
    AGENT = "agent", 10  # the manager gave it back by itself
    UNANSWERED = "unanswered", 11  # the manager never began
