"""What the coordinator and a connected manager have to know of each other, without the ORM.

Called by the manager socket (through tasks.services.manager_beats) and by the watch over open
sockets. One statement each, many managers at a time.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from core.pg import get_pool, load_sql
from managers.enums import ReleaseReason
from mitosis_protocol.enums import AssignmentState, ConnState, DesiredState, ManagerState

_DUTY: Final = load_sql("managers", "session_duty")
_DUE: Final = load_sql("managers", "session_due")
_ADVANCE: Final = load_sql("managers", "session_advance")
_PROCESS: Final = load_sql("managers", "session_process")
_STANDING: Final = load_sql("managers", "session_standing")

# What a manager says it does, as the step of its engagement that follows from it.
_STEPS: Final = {
    ManagerState.PREPARING: AssignmentState.PREPARING,
    ManagerState.EXECUTING: AssignmentState.EXECUTING,
}


@dataclass(frozen=True, slots=True)
class Engaged:
    """The live engagement; `release_reason` is set once it has to end."""

    assignment_id: int
    state: AssignmentState
    suite_uuid: uuid.UUID
    is_paused: bool
    release_reason: ReleaseReason | None


@dataclass(frozen=True, slots=True)
class Duty:
    """What is wanted of one manager."""

    manager_id: int
    desired_state: DesiredState
    is_forced: bool
    config_version: int
    heartbeat_s: int
    lease_duration_s: int
    engaged: Engaged | None


@dataclass(frozen=True, slots=True)
class Said:
    """What a manager says it does, and for which engagement (None: whichever it has)."""

    manager_id: int
    state: ManagerState
    assignment_id: int | None


@dataclass(frozen=True, slots=True)
class SessionStanding:
    """What the database says about a runner with an open socket."""

    session_epoch: int
    token_generation: int
    is_revoked: bool
    is_lost: bool
    process_id: uuid.UUID | None


async def read_duties(manager_ids: Collection[int]) -> dict[int, Duty]:
    """By manager; one that is missing does not exist."""
    rows = await get_pool().fetch(_DUTY, {"manager_ids": sorted(manager_ids)})
    return {row[0]: _duty(row) for row in rows}


async def advance_engagements(said: Sequence[Said]) -> None:
    """Let engagements follow their managers; whoever is further already stays there."""
    steps = [one for one in said if one.state in _STEPS]
    if not steps:
        return
    parameters = {
        "manager_ids": [one.manager_id for one in steps],
        "assignment_ids": [one.assignment_id for one in steps],
        "states": [_STEPS[one.state].code for one in steps],
    }
    if not await get_pool().fetch(_DUE, parameters):
        return  # a manager says the same every 30 s: one statement is all it costs
    async with get_pool().transaction() as conn:
        await conn.execute(_DUE, parameters)
        await conn.execute(_ADVANCE, parameters)


async def note_process(*, manager_id: int, session_epoch: int, process_id: uuid.UUID) -> bool:
    """Remember the process of a session; False if a newer session took over."""
    parameters = {
        "manager_id": manager_id,
        "session_epoch": session_epoch,
        "process_id": process_id,
    }
    return await get_pool().execute(_PROCESS, parameters) == 1


async def read_standings(manager_ids: Collection[int]) -> dict[int, SessionStanding]:
    """By manager, for all open sockets of a process at once."""
    rows = await get_pool().fetch(_STANDING, {"manager_ids": sorted(manager_ids)})
    return {
        manager_id: SessionStanding(
            epoch, generation, revoked, conn == ConnState.LOST.code, process
        )
        for manager_id, epoch, generation, revoked, conn, process in rows
    }


def _duty(row: Sequence[Any]) -> Duty:
    manager_id, desired, is_forced, version, heartbeat_s, lease_s = row[:6]
    return Duty(
        manager_id=manager_id,
        desired_state=DesiredState.from_code(desired),
        is_forced=is_forced,
        config_version=version,
        heartbeat_s=heartbeat_s,
        lease_duration_s=lease_s,
        engaged=_engaged(*row[6:]),
    )


def _engaged(
    assignment_id: int | None,
    state: int,
    reason: int | None,
    suite_uuid: uuid.UUID,
    is_paused: bool,
) -> Engaged | None:
    if assignment_id is None:
        return None
    return Engaged(
        assignment_id=assignment_id,
        state=AssignmentState.from_code(state),
        suite_uuid=suite_uuid,
        is_paused=is_paused,
        release_reason=None if reason is None else ReleaseReason.from_code(reason),
    )
