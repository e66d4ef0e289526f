"""One at a time at a job that waits for strangers, across all processes.

Not an advisory lock: ours live as long as a transaction, and none may be open while a receiver
thinks. Without this, two runs that wait could take every place of a small Celery worker, and the
reaper would wait behind them. Whoever dies keeps the turn until it is over by itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.db import connection

from core.pg import load_sql
from notifications.models import JobTurn

_TAKE: Final = load_sql("notifications", "take_turn")


@contextmanager
def turn(name: str, *, limit_s: float) -> Iterator[bool]:
    """Whether the turn is ours; given back at the end of the block."""
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, {"name": name, "limit_s": limit_s})
        row = cursor.fetchone()
    if row is None:
        yield False
        return
    try:
        yield True
    finally:
        # Only if it is still this one: after `limit_s` it may be somebody else's.
        JobTurn.objects.filter(name=name, until=row[0]).delete()
