"""What the scheduler sees of the world at one moment: hosts, campaigns, people's choices, rules.

Frozen values, read by managers.services.snapshot and thought about by managers.planning.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from mitosis_protocol.enums import AssignmentState, DesiredState, ManagerState, SuiteState


@dataclass(frozen=True, slots=True)
class Engagement:
    """A live assignment of a host."""

    id: int
    suite_id: int
    state: AssignmentState
    age_s: float
    is_lease_over: bool
    idle_s: float | None  # None: it has something to do
    holds_tasks: bool

    @property
    def is_leaving(self) -> bool:
        return self.state is AssignmentState.CLEANUP


@dataclass(frozen=True, slots=True)
class Host:
    """A manager that was not revoked."""

    id: int
    tags: Collection[str]
    group_ids: Collection[int]  # with an accepted Write or Admin role
    state: ManagerState = ManagerState.IDLE
    desired: DesiredState = DesiredState.ACTIVE
    is_reachable: bool = True  # connected, and its lease is alive
    is_forced: bool = False
    engagement: Engagement | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """Tasks that the same hosts can take: those with the tags that did not give them up."""

    tags: Collection[str] = ()
    excluded: Collection[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A suite that is live or still has hosts."""

    id: int
    group_id: int
    tags: Collection[str] = ()
    priority: int = 0
    weight: float = 1.0
    auto_match: bool = True
    workers: int = 1
    max_running: int | None = None
    state: SuiteState = SuiteState.OPEN
    is_paused: bool = False
    is_blocked: bool = False
    linger_s: float = 60.0
    pending: int = 0
    demands: Collection[Kind] = ()  # of tasks that could be claimed now

    @property
    def has_work(self) -> bool:
        """Something a host with the right tags could take right now."""
        is_live = self.state in {SuiteState.OPEN, SuiteState.CLOSED}
        return is_live and bool(self.demands) and not self.is_paused and not self.is_blocked


@dataclass(frozen=True, slots=True)
class Picks:
    """What people decided and hosts failed at, by suite."""

    chosen: Mapping[int, Collection[int]] = field(default_factory=dict)
    matched: Mapping[int, Collection[int]] = field(default_factory=dict)
    removed: Mapping[int, Collection[int]] = field(default_factory=dict)
    banned: Mapping[int, Collection[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The numbers of the configuration row that planning needs."""

    idle_threshold_s: float = 300.0
    answer_s: float = 120.0  # a host that has not begun by then is taken off
