"""Why the coordinator ends a manager's socket; part of the protocol, so never reassigned."""

from enum import IntEnum
from typing import Final

# The reasons that may stand beside SUPERSEDED: the agent gives way to the one, and comes back from
# the other.
SUPERSEDED: Final = "superseded"
LEASE_LOST: Final = "lease lost"


class CloseCode(IntEnum):
    """4400 and above are ours (RFC 6455 leaves 4000-4999 to applications)."""

    INTERNAL = 1011  # a bug of ours: reconnect
    PROTOCOL = 4400  # a version or behaviour we cannot serve
    AUTH = 4401  # the token expired or was revoked: get another one
    SUPERSEDED = 4409  # a newer session took over, or the lease was lost
    TOO_LARGE = 4413  # a frame beyond the limit
    OVERLOAD = 4429  # too many frames, or a reader too slow for its answers
