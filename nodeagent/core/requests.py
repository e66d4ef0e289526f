"""What each open request to the coordinator was for. Timeouts come from outside, as events.

Numbered from 1 for the life of the process, so an answer on a new socket never fits a request of
an old one. Used by every part of the core that asks.
"""

from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

import msgspec

from mitosis_protocol.manager_reports import TaskReport
from mitosis_protocol.to_manager import ResolvedResource
from nodeagent.events import RequestToken

if TYPE_CHECKING:
    from nodeagent.core.model import Claim


class Greeting(msgspec.Struct):
    """`hello`"""

    sent_at: float


class Beating(msgspec.Struct):
    """A heartbeat, and the engagement it named."""

    sent_at: float
    assignment_id: int | None


class Fetching:
    """`fetch_tasks`"""

    __slots__ = ("claim",)

    def __init__(self, claim: "Claim") -> None:
        self.claim = claim


class Reporting(msgspec.Struct):
    """`report_tasks`, line by line."""

    lines: list[TaskReport]


class Returning(msgspec.Struct):
    """`return_tasks`"""

    attempt_ids: list[int]


class Writing(msgspec.Struct):
    """The first letter of the engagement with this debt."""

    debt_id: int


class Uploading(msgspec.Struct):
    """A worker waits for a link."""

    token: RequestToken
    attempt_id: int


class Submitting(msgspec.Struct):
    """A worker waits for its follow-up task."""

    token: RequestToken
    attempt_id: int
    op_id: UUID


class Resolving(msgspec.Struct):
    """A worker waits for links, which may come in parts."""

    token: RequestToken
    parts: list[ResolvedResource]


Purpose: TypeAlias = (
    Greeting
    | Beating
    | Fetching
    | Reporting
    | Returning
    | Writing
    | Uploading
    | Submitting
    | Resolving
)


class Requests:
    """Open requests by id."""

    def __init__(self) -> None:
        self.open: dict[int, Purpose] = {}
        self._last = 0

    def ask(self, purpose: Purpose) -> int:
        self._last += 1
        self.open[self._last] = purpose
        return self._last

    def take_all(self) -> list[Purpose]:
        """The link is gone."""
        purposes = list(self.open.values())
        self.open.clear()
        return purposes
