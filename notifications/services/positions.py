"""Where readers of the event log have come to. Under each reader's own advisory lock."""

from typing import Final

from django.db import connection

from core.pg import load_sql
from notifications.models import LogPosition

_SKIP: Final = load_sql("notifications", "skip_log")


def skip_to_now(reader: str) -> None:
    """Leave out everything that has happened so far."""
    with connection.cursor() as cursor:
        cursor.execute(_SKIP, {"reader": reader, "is_skipping": True})


def position_of(reader: str) -> tuple[str, int]:
    """(xid, id) of the last event read; a new reader begins now."""
    with connection.cursor() as cursor:
        cursor.execute(_SKIP, {"reader": reader, "is_skipping": False})
    row = LogPosition.objects.get(pk=reader)
    return row.xid, row.event_id
