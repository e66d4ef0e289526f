"""What the planning of an allocation is about: jobs, agents, limits, and what may be done.

Plain values; `plan` turns a Picture into actions, `loop` carries them out.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

import msgspec

from mitosis_client.errors import ConfigError
from mitosis_client.models import Suite


class Phase(Enum):
    """Where a job stands, whatever the batch system's own word for it is."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "ending"  # its processes are being ended; the nodes are still taken
    ENDED = "ended"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the allocation as the batch system shows it."""

    id: str
    # Made by us for one submission: tells whether a submission without an answer arrived.
    token: str
    phase: Phase
    state: str
    reason: str = ""
    ran_s: int = 0
    left_s: int | None = None  # when it was last running; None: no limit, or it never ran
    exit_code: int = 0

    @property
    def is_alive(self) -> bool:
        return self.phase is not Phase.ENDED


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """The node agent of a job as the coordinator knows it."""

    manager: str
    is_online: bool
    is_idle: bool
    is_leaving: bool = False


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator allows."""

    max_jobs: int
    min_jobs: int = 0
    tasks_per_job: int = 64
    # Agents are told to finish so long before their walltime ends.
    drain_s: int = 300
    # An agent without work for so long may leave, if it is one too many.
    idle_s: float = 120.0
    # A job that ends sooner than this without being asked to has failed.
    young_s: float = 60.0
    first_pause_s: float = 30.0
    max_pause_s: float = 900.0
    # A submission without an answer counts as a job for so long.
    doubt_s: float = 300.0
    # New jobs a look: the first ones of a bad configuration fail before the rest is submitted.
    max_submits: int = 10

    def __post_init__(self) -> None:
        if self.min_jobs > self.max_jobs:
            raise ConfigError("min-jobs: more than max-jobs")


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Whose tasks count: suites of these groups that agents with these tags can serve."""

    groups: tuple[str, ...]
    tags: tuple[str, ...] = ()
    # Uuids or names; empty: all of them.
    suites: tuple[str, ...] = ()

    def covers(self, suite: Suite) -> bool:
        is_named = not self.suites or suite.uuid in self.suites or suite.name in self.suites
        is_live = not suite.is_paused and suite.blocked_reason is None
        return is_named and is_live and set(suite.tags) <= set(self.tags)


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a decision is based on, read in one go."""

    backlog: int  # tasks that wait or run
    jobs: tuple[Job, ...]
    agents: Mapping[str, Agent]  # by job id


class Submit(msgspec.Struct, frozen=True):
    token: str


class Cancel(msgspec.Struct, frozen=True):
    """Only while it waits."""

    job: str


class Dismiss(msgspec.Struct, frozen=True):
    """Ask an idle agent to leave; what it might hold by then it finishes."""

    job: str
    manager: str


class Forget(msgspec.Struct, frozen=True):
    """End the registration of an agent whose job is over: its tasks go back at once."""

    job: str
    manager: str


class Note(msgspec.Struct, frozen=True):
    """Something a person should know."""

    event: str
    text: str
    job: str = ""


Action: TypeAlias = Submit | Cancel | Dismiss | Forget | Note
