"""Writes the insert-only audit log, in the transaction of the change it speaks of.

Called by services of every app. Never put secrets or token texts into `detail`.
"""

import json
from collections.abc import Mapping

from django.db import connection

from accounts.actors import Actor
from core.pg import get_pool, load_sql

_INSERT = load_sql("accounts", "insert_audit_entry")


def record(
    *,
    actor: Actor,
    action: str,
    target: str = "",
    outcome: str = "ok",
    detail: Mapping[str, object] | None = None,
) -> None:
    """Add an entry through Django's connection; part of the open transaction, if there is one."""
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, _parameters(actor, action, target, outcome, detail))


async def arecord(
    *,
    actor: Actor,
    action: str,
    target: str = "",
    outcome: str = "ok",
    detail: Mapping[str, object] | None = None,
) -> None:
    """The same from asynchronous code, as a statement of its own."""
    async with get_pool().connection() as pooled:
        await pooled.execute(_INSERT, _parameters(actor, action, target, outcome, detail))


def _parameters(
    actor: Actor,
    action: str,
    target: str,
    outcome: str,
    detail: Mapping[str, object] | None,
) -> dict[str, str | None]:
    return {
        "actor_kind": actor.kind,
        "actor_id": actor.id,
        "action": action,
        "object": target,
        "outcome": outcome,
        "ip": actor.ip,
        "request_id": actor.request_id,
        "detail": json.dumps(detail or {}),
    }
