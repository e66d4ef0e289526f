"""Heartbeats of managers: the lease of the session, and what the manager says it is doing.

Over the socket in sets (`record_beats`), over HTTP one by one (`record_beat`); the same statement.
What a manager holds is reconciled by tasks.services.heartbeat; what it is engaged with, by
managers.services.engagement.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connection

from core.errors import InvalidInput, Superseded
from core.pg import get_pool, load_sql
from managers.services.metrics_history import SAMPLE_S, add_samples, add_samples_sync
from mitosis_protocol.enums import ManagerState

_LOCK: Final = load_sql("runners", "lock_leases")
_BEAT: Final = load_sql("managers", "heartbeat")

MAX_METRICS_BYTES: Final = 64 * 1024  # six families of numbers are about 4 KiB


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat. The identity comes from the token; the epoch from the manager's session."""

    manager_id: int
    session_epoch: int
    state: ManagerState
    metrics: Mapping[str, object] | None = None
    config_version: int | None = None


def record_beat(beat: Beat, *, ttl_s: float) -> datetime:
    """Renew the lease; answers when it ends. Raises Superseded for an older session (409)."""
    with connection.cursor() as cursor:
        cursor.execute(_BEAT, _parameters([beat], ttl_s))
        row = cursor.fetchone()
    if row is None:
        raise Superseded("session_epoch: a newer session of this manager took over")
    add_samples_sync(_measured([beat], [row]))
    expires_at: datetime = row[1]
    return expires_at


async def record_beats(beats: Sequence[Beat], *, ttl_s: float) -> dict[int, datetime]:
    """Renew many leases; a manager missing in the answer was superseded or revoked."""
    parameters = _parameters(beats, ttl_s)
    async with get_pool().transaction() as conn:
        await conn.execute(_LOCK, {"runner_ids": parameters["manager_ids"]})
        cursor = await conn.execute(_BEAT, parameters)
        rows = await cursor.fetchall()
    # After the commit and in a statement of its own: history must not endanger leases.
    await add_samples(_measured(beats, rows))
    return {manager_id: expires_at for manager_id, expires_at, _ in rows}


def _measured(
    beats: Sequence[Beat], rows: Sequence[tuple[Any, ...]]
) -> list[tuple[int, Mapping[str, object]]]:
    """Metrics that are due for the history."""
    due = {manager_id for manager_id, _, is_due in rows if is_due}
    return [
        (beat.manager_id, beat.metrics)
        for beat in beats
        if beat.manager_id in due and beat.metrics is not None
    ]


def _parameters(beats: Sequence[Beat], ttl_s: float) -> dict[str, Any]:
    for beat in beats:
        if beat.state is ManagerState.OFFLINE:
            raise InvalidInput("state: Offline is the coordinator's verdict")
    return {
        "manager_ids": [beat.manager_id for beat in beats],
        "session_epochs": [beat.session_epoch for beat in beats],
        "states": [beat.state.code for beat in beats],
        "metrics": [metrics_text(beat.metrics) for beat in beats],
        "config_versions": [beat.config_version for beat in beats],
        "ttl_s": ttl_s,
        "sample_s": SAMPLE_S,
    }


def metrics_text(metrics: Mapping[str, object] | None) -> str | None:
    """As it is stored. Raises InvalidInput, and ValueError for an infinite number."""
    if metrics is None:
        return None
    text = json.dumps(metrics, allow_nan=False)
    if len(text) > MAX_METRICS_BYTES:
        raise InvalidInput(f"metrics: {len(text)} bytes, at most {MAX_METRICS_BYTES} are kept")
    if "\\u0000" in text:
        raise InvalidInput("metrics: a NUL cannot be kept")
    return text
