"""What `explain` knows about runners and about what has to be run. Frozen values, no judgement.

Read by tasks.services.explain, judged by tasks.verdicts.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mitosis_protocol.enums import (
    AssignmentState,
    ConsentState,
    DesiredState,
    ManagerState,
    Role,
    RunnerKind,
)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason, for people; `code` is for programs, `fix` the change that would remove it."""

    code: str
    text: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngagementFacts:
    """What a manager is engaged with now. A suite the caller may not know of has no uuid."""

    is_ours: bool
    state: AssignmentState
    lease_until: datetime
    suite_uuid: UUID | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerFacts:
    """A manager or worker that was not revoked."""

    id: int
    uuid: UUID
    kind: RunnerKind = RunnerKind.MANAGER
    tags: frozenset[str] = frozenset()
    role: Role | None = None
    consent: ConsentState | None = None
    desired: DesiredState = DesiredState.ACTIVE
    wish_reason: str = ""
    probe_after: datetime | None = None
    is_connected: bool = True
    is_alive: bool = True  # its lease runs
    last_seen: datetime | None = None
    state: ManagerState = ManagerState.IDLE
    engagement: EngagementFacts | None = None
    is_chosen: bool = False  # by hand
    is_removed: bool = False  # by hand
    is_matched: bool = False
    preparation_failure: str | None = None
    is_busy: bool = False  # an independent worker holds one task at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What has to be run, and what it asks of a runner."""

    group_name: str
    is_suite: bool
    tags: frozenset[str] = frozenset()
    demands: Collection[frozenset[str]] = ()  # tags of the tasks that wait, one per kind of task
    auto_match: bool = True
    priority: int = 0
    pinned_id: int | None = None
    excluded_ids: Collection[int] = ()
