"""Connections and leases of runners: open, close, renew; one statement each, through the pool.

Called by the WebSocket presence code and the heartbeat services. Times are the database's.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from accounts.identity import Identity
from core.errors import AuthenticationFailed
from core.pg import get_pool, load_sql
from mitosis_protocol.errors import ErrorCode

_OPEN: Final = load_sql("runners", "open_session")
_CLOSE: Final = load_sql("runners", "close_session")
_LOCK: Final = load_sql("runners", "lock_leases")
_RENEW: Final = load_sql("runners", "renew_leases")


@dataclass(frozen=True, slots=True)
class RunnerSession:
    """One accepted connection; everything it sends carries this epoch."""

    runner_id: int
    session_epoch: int
    lease_expires_at: datetime


async def open_session(
    identity: Identity, *, process_id: uuid.UUID | None, ttl_s: float
) -> RunnerSession:
    """Take the runner over from whatever connection it had; raises if its token was revoked."""
    parameters = {
        "runner_id": identity.id,
        "generation": identity.generation,
        "process_id": process_id,
        "ttl_s": ttl_s,
    }
    rows = await get_pool().fetch(_OPEN, parameters)
    if not rows:
        raise AuthenticationFailed("Wrong credentials", code=ErrorCode.AUTH_REVOKED_TOKEN)
    [(session_epoch, expires_at)] = rows
    return RunnerSession(identity.id, session_epoch, expires_at)


async def close_session(session: RunnerSession) -> bool:
    """Mark the runner disconnected, unless a newer session took over (then False)."""
    parameters = {"runner_id": session.runner_id, "session_epoch": session.session_epoch}
    return await get_pool().execute(_CLOSE, parameters) == 1


async def renew_leases(epochs: Mapping[int, int], *, ttl_s: float) -> dict[int, datetime]:
    """Renew the lease of each runner (id to epoch); one missing in the answer was superseded."""
    parameters = {
        "runner_ids": list(epochs.keys()),
        "session_epochs": list(epochs.values()),
        "ttl_s": ttl_s,
    }
    async with get_pool().transaction() as conn:
        await conn.execute(_LOCK, {"runner_ids": parameters["runner_ids"]})
        cursor = await conn.execute(_RENEW, parameters)
        return dict(await cursor.fetchall())
