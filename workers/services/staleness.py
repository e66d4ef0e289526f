"""Workers that fell silent: noticed once, said once, and taken back by their next beat.

Called by workers.periodic. Their tasks are requeued by tasks.services.reclaim, with an event that
names the worker; this is the word about the worker itself.
"""

from typing import Final
from uuid import UUID

import structlog
from django.db import connection

from core.pg import load_sql

log = structlog.get_logger(__name__)

_MARK_STALE: Final = load_sql("workers", "mark_stale")
# Of a rack that went dark, the log names these; the view `worker_status` has them all.
_MAX_NAMED: Final = 20


def mark_stale(*, grace_s: float, max_workers: int) -> list[UUID]:
    """Mark workers whose lease ended `grace_s` ago as lost; those that were not before."""
    parameters = {"grace_s": grace_s, "max_workers": max_workers}
    with connection.cursor() as cursor:
        cursor.execute(_MARK_STALE, parameters)
        stale = [row[0] for row in cursor.fetchall()]
    if stale:
        named = [str(uuid) for uuid in stale[:_MAX_NAMED]]
        log.warning("worker.stale", count=len(stale), workers=named)
    return stale
