"""The scheduler's pass: take the picture, think, write it down. Under one lock, idempotent.

Run by a periodic job, and whenever something happened that may let a host work (a submit to a
suite nobody serves, a manager that became idle): a pass too many changes nothing. Telling the
managers is the caller's part, after the commit; an idle agent asks by itself anyway.
"""

import uuid
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from django.db import connection

from core.faults import fault
from core.locks import try_advisory_xact_lock
from core.pg import load_sql
from managers.enums import ReleaseReason
from managers.picture import Rules
from managers.planning import Plan, make_plan
from managers.services.config import read_config
from managers.services.engagement import lock_engagements
from managers.services.snapshot import read_campaigns, read_hosts, read_picks
from mitosis_protocol.enums import AssignmentState

log = structlog.get_logger(__name__)

LOCK: Final = "managers.scheduler"
_ENGAGE: Final = load_sql("managers", "engage")
_SETTLE: Final = load_sql("managers", "settle_engagements")


@dataclass(frozen=True, slots=True)
class Engaged:
    """A new engagement: tell the manager."""

    assignment_id: int
    suite_id: int
    manager_id: int
    manager_uuid: uuid.UUID


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass wrote; `is_mine` False: somebody else was at it."""

    is_mine: bool = True
    engaged: list[Engaged] = field(default_factory=list)
    released: list[tuple[int, ReleaseReason]] = field(default_factory=list)
    renewed: int = 0

    @property
    def count(self) -> int:
        return len(self.engaged) + len(self.released) + self.renewed


def run_pass() -> PassResult:
    """One pass over all managers and suites. Does nothing while another process does it."""
    with try_advisory_xact_lock(LOCK) as is_mine:
        if not is_mine:
            return PassResult(is_mine=False)
        config = read_config()
        campaigns = read_campaigns()
        plan = make_plan(
            read_hosts(),
            campaigns,
            read_picks(campaigns),
            Rules(idle_threshold_s=config.idle_threshold_s),
        )
        fault("scheduler.after_plan")
        _settle(plan, lease_s=config.lease_duration_s)
        engaged = _engage(plan, lease_s=config.lease_duration_s)
    result = PassResult(engaged=engaged, released=plan.release, renewed=len(plan.renew))
    if result.count:
        log.info(
            "scheduler.passed",
            engaged=len(engaged),
            released=len(plan.release),
            renewed=result.renewed,
        )
    return result


def _engage(plan: Plan, *, lease_s: float) -> list[Engaged]:
    if not plan.assign:
        return []
    parameters: dict[str, Any] = {
        "manager_ids": [manager_id for manager_id, _ in plan.assign],
        "suite_ids": [suite_id for _, suite_id in plan.assign],
        "lease_s": lease_s,
    }
    with connection.cursor() as cursor:
        cursor.execute(_ENGAGE, parameters)
        return [Engaged(*row) for row in cursor.fetchall()]


def _settle(plan: Plan, *, lease_s: float) -> None:
    renew = set(plan.renew)
    states = dict.fromkeys(plan.rest, AssignmentState.LINGERING.code)
    states |= dict.fromkeys(plan.wake, AssignmentState.EXECUTING.code)
    idle = dict.fromkeys(plan.idle, 1) | dict.fromkeys(plan.busy, 0)
    reasons = {engagement_id: reason.code for engagement_id, reason in plan.release}
    ids = sorted({*renew, *states, *idle, *reasons})
    if not ids:
        return
    parameters: dict[str, Any] = {
        "ids": ids,
        "renew": [one in renew for one in ids],
        "states": [states.get(one) for one in ids],
        "idle": [idle.get(one) for one in ids],
        "reasons": [reasons.get(one) for one in ids],
        "lease_s": lease_s,
    }
    lock_engagements(ids=ids)
    with connection.cursor() as cursor:
        cursor.execute(_SETTLE, parameters)
