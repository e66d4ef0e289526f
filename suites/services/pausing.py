"""Reasons not to hand out tasks that are no states: paused by a person, blocked by the system.

A paused or blocked suite still takes submits, closes and completes. Claims and the scheduler look
at the two columns; resuming clears both and forgives the failures so far.
"""

from typing import Final

from django.db import connection, transaction
from django.db.models.functions import Now

from accounts.actors import SYSTEM, Actor
from accounts.services.audit import record
from core.errors import InvalidTransition
from core.pg import load_sql
from mitosis_protocol.enums import SuiteState
from mitosis_protocol.limits import MAX_ERROR_MESSAGE_CHARS
from suites.models import TaskSuite

_UNBLOCK: Final = load_sql("suites", "unblock")


def pause_suite(*, actor: Actor, suite: TaskSuite) -> bool:
    """Hand out nothing more; what runs goes on. False if it was paused before."""
    with transaction.atomic():
        rows = TaskSuite.objects.filter(pk=suite.pk).exclude(state=SuiteState.CANCELLED)
        changed = rows.filter(paused_at__isnull=True).update(paused_at=Now(), updated_at=Now())
        if not changed and not rows.exists():
            raise _cancelled("paused")
        record(actor=actor, action="suite.pause", target=str(suite.uuid))
    return bool(changed)


def resume_suite(*, actor: Actor, suite: TaskSuite) -> None:
    """Neither paused nor blocked any more. Idempotent; raises InvalidTransition if cancelled."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_UNBLOCK, {"suite_id": suite.pk})
        if cursor.fetchone() is None:
            raise _cancelled("resumed")
        record(actor=actor, action="suite.resume", target=str(suite.uuid))


def block_suite(suite_id: int, *, reason: str) -> bool:
    """Stop handing out tasks because they cannot succeed; the first reason stays.

    Called by the system, in its caller's transaction. False if it was blocked before or has ended.
    """
    text = reason[:MAX_ERROR_MESSAGE_CHARS]
    rows = TaskSuite.objects.live().filter(pk=suite_id, blocked_at__isnull=True)
    changed = rows.update(blocked_at=Now(), blocked_reason=text, updated_at=Now())
    if changed:
        record(actor=SYSTEM, action="suite.block", target=str(suite_id), detail={"reason": text})
    return bool(changed)


def _cancelled(wanted: str) -> InvalidTransition:
    return InvalidTransition(f"A cancelled suite cannot be {wanted}")
