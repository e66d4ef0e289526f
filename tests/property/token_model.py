"""Which tokens of managers are good at this moment: the oracle of the token machine.

Written from the contract (correctness 5.2): a refresh token works once; the one before the newest
works a little longer; any other one that was issued ends everything; an access token is good until
it expires or the generation moves on.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from mitosis_protocol.errors import ErrorCode

OVERLAP = timedelta(minutes=5)
ACCESS = timedelta(hours=1)
LEEWAY = timedelta(minutes=1)  # of clocks, for access tokens
LIFETIME = timedelta(hours=20, minutes=45)  # one long pause away


@dataclass(frozen=True)
class Access:
    """An access token and what it was issued for."""

    token: str
    owner: "Family"
    generation: int
    expires_at: datetime

    def is_good(self, now: datetime) -> bool:
        family = self.owner
        is_current = self.generation == family.generation and not family.is_revoked
        return is_current and now - LEEWAY < self.expires_at


@dataclass(eq=False)
class Family:
    """Everything issued to one manager."""

    expires_at: datetime
    generation: int
    newest: str | None
    issued: list[str] = field(default_factory=list)
    spent: str | None = None
    spent_at: datetime | None = None
    is_revoked: bool = False

    def refresh(self, token: str, now: datetime) -> ErrorCode | None:
        """Why the token is refused, if it is; what a reuse ends has ended then."""
        if now >= self.expires_at:
            return ErrorCode.AUTH_EXPIRED_TOKEN
        if self.newest is None or token not in self.issued:
            return ErrorCode.AUTH_INVALID_TOKEN
        if token == self.newest:
            self.spent, self.spent_at = token, now
            return None
        is_repeat = token == self.spent and self.spent_at is not None
        if is_repeat and self.spent_at is not None and now - self.spent_at <= OVERLAP:
            return None
        self.newest = self.spent = None
        self.generation += 1
        return ErrorCode.AUTH_REVOKED_TOKEN

    def hand_out(self, token: str) -> None:
        self.newest = token
        self.issued.append(token)

    def revoke(self) -> None:
        self.generation += not self.is_revoked
        self.is_revoked, self.newest, self.spent = True, None, None
