"""The ledger: every attempt this host answers for, each in exactly one stage.

Filled by nodeagent.core.supply, moved by the other parts of the core. Counts are kept beside the
rows because they are read after every event.
"""

from enum import Enum, auto
from typing import TYPE_CHECKING, Literal, TypeAlias
from uuid import UUID

from mitosis_protocol.ipc import WorkItem
from mitosis_protocol.manager_reports import TaskReport
from nodeagent.events import RequestToken

if TYPE_CHECKING:
    from nodeagent.core.model import Engagement

Wish: TypeAlias = Literal["cancelled", "revoked"]
Farewell: TypeAlias = Literal["settled", "returned", "revoked", "dropped"]


class Stage(Enum):
    """Where an attempt is."""

    SHELVED = auto()  # on the shelf, or on its way there or back
    HANDED = auto()  # a worker has it
    STORING = auto()  # its report is on the way into the outbox
    FINISHED = auto()  # its report is in the outbox
    DECIDING = auto()  # its crash was taken, but what follows from that got lost: asked again
    RETURNING = auto()  # on its way back to the coordinator, unstarted


class Attempt:
    """One task in our hands. `item` is missing for what an earlier life left in the outbox."""

    __slots__ = (
        "attempt_id",
        "follow_up",
        "home",
        "item",
        "op_id",
        "report",
        "stage",
        "stop_by",
        "tokens",
        "wish",
        "worker_id",
    )

    def __init__(
        self, attempt_id: int, item: WorkItem | None, stage: Stage, home: "Engagement | None"
    ) -> None:
        self.attempt_id = attempt_id
        self.item = item
        self.stage = stage
        self.home = home  # the engagement it was fetched for
        self.worker_id: int | None = None  # the slot, from HANDED on
        self.wish: Wish | None = None  # what the coordinator wants of it
        self.stop_by: float | None = None  # a worker that does not let go by then is killed
        self.op_id: UUID | None = None  # of its line, from STORING on
        self.report: TaskReport | None = None
        self.tokens: list[RequestToken] = []  # who waits until the report is safe
        self.follow_up: tuple[bytes, UUID] | None = None  # one op_id however often it is submitted

    @property
    def task_uuid(self) -> UUID | None:
        return None if self.item is None else self.item.task.task_uuid


class Ledger:
    """Attempts by id, in the order in which they came."""

    def __init__(self) -> None:
        self.attempts: dict[int, Attempt] = {}
        self.shelved_count = 0
        self.received_count = 0
        self.gone_counts: dict[Farewell, int] = {
            "settled": 0,
            "returned": 0,
            "revoked": 0,
            "dropped": 0,
        }

    def receive(self, attempt: Attempt) -> None:
        self.attempts[attempt.attempt_id] = attempt
        self.received_count += 1
        if attempt.stage is Stage.SHELVED:
            self.shelved_count += 1

    def move(self, attempt: Attempt, stage: Stage) -> None:
        if attempt.stage is Stage.SHELVED:
            self.shelved_count -= 1
        if stage is Stage.SHELVED:
            self.shelved_count += 1
        attempt.stage = stage

    def drop(self, attempt: Attempt, why: Farewell) -> None:
        """It is nobody's business here any more."""
        if attempt.stage is Stage.SHELVED:
            self.shelved_count -= 1
        del self.attempts[attempt.attempt_id]
        self.gone_counts[why] += 1

    def find_task(self, task_uuid: UUID) -> Attempt | None:
        """Rare (a cancel names the task), so it is searched for."""
        return next((one for one in self.attempts.values() if one.task_uuid == task_uuid), None)

    def in_stage(self, *stages: Stage) -> list[Attempt]:
        return [one for one in self.attempts.values() if one.stage in stages]

    def inventory(self, at_most: int) -> list[int]:
        """What we answer for; what we were told is not ours is left out.

        Unfinished ones first: should there ever be too many, a finished one that is not named
        only costs its task another run, while the report itself is sent all the same.
        """
        ours = [one for one in self.attempts.values() if one.wish != "revoked"]
        if len(ours) > at_most:
            ours.sort(key=lambda one: one.stage is Stage.FINISHED)
        return [one.attempt_id for one in ours[:at_most]]
