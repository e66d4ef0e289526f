"""Takes the scheduler's picture: five reads, whatever the size of fleet and campaigns."""

from typing import Final

from django.db import connection

from core.pg import load_sql
from managers.picture import Campaign, Engagement, Host, Kind, Picks
from mitosis_protocol.enums import AssignmentState, DesiredState, ManagerState, SuiteState

_FLEET: Final = load_sql("managers", "fleet")
_CAMPAIGNS: Final = load_sql("managers", "campaigns")
_DEMANDS: Final = load_sql("managers", "demands")
_PICKS: Final = load_sql("managers", "picks")

# from_code walks the members; a dictionary does it once for a thousand rows.
_STATES: Final = {one.code: one for one in ManagerState}
_DESIRED: Final = {one.code: one for one in DesiredState}
_ASSIGNMENT: Final = {one.code: one for one in AssignmentState}
_SUITE: Final = {one.code: one for one in SuiteState}


def read_hosts() -> list[Host]:
    with connection.cursor() as cursor:
        cursor.execute(_FLEET)
        return [
            Host(
                id=row[0],
                tags=row[1],
                group_ids=row[2],
                state=_STATES[row[3]],
                desired=_DESIRED[row[4]],
                is_reachable=row[5],
                is_forced=row[6],
                engagement=None
                if row[7] is None
                else Engagement(row[7], row[8], _ASSIGNMENT[row[9]], *row[10:14]),
            )
            for row in cursor.fetchall()
        ]


def read_campaigns() -> list[Campaign]:
    demands = _read_demands()
    with connection.cursor() as cursor:
        cursor.execute(_CAMPAIGNS)
        return [
            Campaign(
                id=row[0],
                group_id=row[1],
                tags=row[2],
                priority=row[3],
                weight=row[4],
                auto_match=row[5],
                workers=row[6],
                max_running=row[7],
                state=_SUITE[row[8]],
                is_paused=row[9],
                is_blocked=row[10],
                linger_s=row[11],
                pending=row[12],
                demands=demands.get(row[0], ()),
            )
            for row in cursor.fetchall()
        ]


def _read_demands() -> dict[int, list[Kind]]:
    """What waits, by suite."""
    demands: dict[int, list[Kind]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_DEMANDS)
        for suite_id, tags, excluded in cursor.fetchall():
            demands.setdefault(suite_id, []).append(Kind(tags, excluded))
    return demands


def read_picks(campaigns: list[Campaign]) -> Picks:
    piles: dict[str, dict[int, set[int]]] = {
        pile: {} for pile in ("chosen", "matched", "removed", "banned")
    }
    parameters = {
        "suite_ids": [one.id for one in campaigns],
        "manual_ids": [one.id for one in campaigns if not one.auto_match],
    }
    with connection.cursor() as cursor:
        cursor.execute(_PICKS, parameters)
        for pile, suite_id, manager_id in cursor.fetchall():
            piles[pile].setdefault(suite_id, set()).add(manager_id)
    return Picks(**piles)
