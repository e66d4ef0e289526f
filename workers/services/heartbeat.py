"""Beats of workers on HTTP: one statement through the async pool, no thread.

Called by workers.api for heartbeats, and for a fetch that finds the lease over: whoever asks for
work is alive.
"""

from typing import Final

from accounts.identity import Identity
from core.errors import AuthenticationFailed
from core.pg import get_pool, load_sql
from mitosis_protocol.errors import ErrorCode

_BEAT: Final = load_sql("workers", "heartbeat")


async def record_beat(identity: Identity, *, ttl_s: float, metadata: str | None = None) -> bool:
    """Renew the lease; whether it had run out and was reaped. `metadata` is JSON and replaces.

    Raises AuthenticationFailed for a worker that was removed, DatabaseUnavailable.
    """
    parameters = {"runner_id": identity.id, "ttl_s": ttl_s, "metadata": metadata}
    rows = await get_pool().fetch(_BEAT, parameters)
    if not rows:
        raise AuthenticationFailed("Wrong credentials", code=ErrorCode.AUTH_REVOKED_TOKEN)
    return bool(rows[0][1])
