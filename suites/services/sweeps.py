"""What time does to suites: closing, completing, stopping. Idempotent, set-based.

Run by the periodic jobs, or by a coordinator process when beat is silent. Each sweep finds and
locks the suites nobody else holds, then changes them in a second statement of the same
transaction, whose snapshot is newer than the locks: two sweepers share the work, nobody waits.
"""

from collections.abc import Collection, Mapping
from typing import Final

import structlog
from django.db import connection, transaction

from core.faults import fault
from core.pg import load_sql

log = structlog.get_logger(__name__)

# Below this many ended tasks a failure rate is noise: 1 of 2 is 50 %.
MIN_ENDED_FOR_RATE: Final = 20


def close_idle(*, idle_s: float, batch: int) -> list[int]:
    """Close open suites without a submit for `idle_s`; answers their ids."""
    return _sweep("idle", {"idle_s": idle_s, "batch": batch})


def complete_drained(*, batch: int) -> list[int]:
    """Complete suites in which nothing is active; answers their ids."""
    return _sweep("drained", {"batch": batch})


def complete_emptied(suite_ids: Collection[int]) -> list[int]:
    """Complete those of the given suites that are closed and have no task left; answers them."""
    return _sweep("emptied", {"suite_ids": list(suite_ids)}, apply="drained")


def stop_failing(*, batch: int, min_ended: int = MIN_ENDED_FOR_RATE) -> list[int]:
    """Block suites whose failures passed their limit; answers their ids."""
    return _sweep("failing", {"batch": batch, "min_ended": min_ended})


def _sweep(kind: str, parameters: Mapping[str, float | list[int]], *, apply: str = "") -> list[int]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(load_sql("suites", f"find/{kind}"), parameters)
        found = [int(row[0]) for row in cursor.fetchall()]
        if not found:
            return []
        fault(f"suites.sweep_{kind}")
        cursor.execute(load_sql("suites", f"apply/{apply or kind}"), {"suite_ids": found})
        changed = [int(row[0]) for row in cursor.fetchall()]
    if changed:
        log.info("suites.swept", kind=kind, count=len(changed), suite_ids=changed[:20])
    return changed
