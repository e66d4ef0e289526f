"""Bursts of failures, found in the event log. Called by notifications.periodic and the standby.

Counting and moving on in the log are one statement, telling is another; both in one transaction
under an advisory lock. A run that dies has done nothing, a second one at the same time neither.
"""

from datetime import timedelta
from typing import Final

from django.db import connection

from core import clock
from core.locks import try_advisory_xact_lock
from core.pg import load_sql
from mitosis_protocol.enums import NoticeKind
from notifications.models import FailureMinute, Webhook
from notifications.services.positions import position_of, skip_to_now

_COUNT: Final = load_sql("notifications", "count_failures")
_TELL: Final = load_sql("notifications", "tell_bursts")
READER: Final = "bursts"  # also in count_failures.sql
MAX_EVENTS: Final = 20_000  # of one slice: a few hundred milliseconds
MAX_SLICES: Final = 10


def tell_bursts(*, failures: int, window_s: float) -> int:
    """Count what the log has new and tell of bursts; answers how many deliveries were made."""
    with try_advisory_xact_lock("sweep.failure_bursts") as is_ours:
        if not is_ours:
            return 0
        if not _is_wanted():
            skip_to_now(READER)
            return 0
        _count()
        with connection.cursor() as cursor:
            cursor.execute(_TELL, {"failures": failures, "window_s": window_s})
            told = int(cursor.rowcount)
        old = clock.now() - timedelta(seconds=2 * window_s)
        FailureMinute.objects.filter(minute__lt=old).delete()
    return told


def _is_wanted() -> bool:
    subscribed = Webhook.objects.filter(kinds__contains=[NoticeKind.FAILURE_BURST.code])
    return subscribed.filter(is_enabled=True).exists()


def _count() -> None:
    """Slice by slice to the end of the log, or as far as one run goes."""
    for _ in range(MAX_SLICES):
        # As parameters and not as a join: only so the slice is a range of the primary key.
        xid, event_id = position_of(READER)
        with connection.cursor() as cursor:
            cursor.execute(_COUNT, {"xid": xid, "id": event_id, "max_events": MAX_EVENTS})
            if cursor.fetchone()[0] < MAX_EVENTS:
                return
