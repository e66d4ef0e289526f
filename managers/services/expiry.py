"""Managers that have not been heard of: Offline, and their engagements over.

Two guards against our own faults: nothing expires before the coordinator has been up for a whole
lease (the sweeps keep that record), and when a large part of the fleet falls silent at once the
sweep waits one more lease and says so.
"""

from typing import Final

import structlog
from django.db import connection, transaction

from core.faults import fault
from core.pg import load_sql
from managers.enums import ReleaseReason
from managers.services.engagement import release_all
from mitosis_protocol.enums import ManagerState
from mitosis_protocol.transitions import MANAGER, source_codes

log = structlog.get_logger(__name__)

_CENSUS: Final = load_sql("managers", "lease_census")
_EXPIRE: Final = load_sql("managers", "expire_managers")
_TAKE_OFFLINE: Final = load_sql("managers", "take_offline")

# One or two dead hosts are everyday life in a small fleet, whatever the ratio says.
FEW: Final = 2


def expire_managers(
    *, grace_s: float, lease_ttl_s: float, mass_expiry_ratio: float, batch: int
) -> list[int]:
    """Take managers whose lease ended offline; answers them. Idempotent."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_CENSUS, {"grace_s": grace_s, "patience_s": lease_ttl_s})
        expired, alive, overdue = cursor.fetchone()
        is_mass = expired > FEW and expired > mass_expiry_ratio * (expired + alive)
        if is_mass and overdue < expired:
            log.error("managers.expiry_paused", expired=expired, alive=alive)
            return []
        fault("managers.expire")
        sources = source_codes(MANAGER, ManagerState.OFFLINE)
        cursor.execute(_EXPIRE, {"grace_s": grace_s, "batch": batch, "sources": sources})
        gone = [int(row[0]) for row in cursor.fetchall()]
        cursor.execute(_TAKE_OFFLINE, {"manager_ids": gone, "sources": sources})
        release_all(gone, ReleaseReason.LEASE)
    if gone:
        log.warning("managers.expired", count=len(gone), manager_ids=gone[:20])
    return gone
