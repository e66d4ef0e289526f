"""The direct workers that this process serves. Opened by mitosis_site.runtime."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

from accounts.identity import Identity
from core.push import WORKER_PUSH, tenant_group, worker_group
from runners.services.sessions import RunnerSession
from websocket.presence import Presence, SocketKind, watched
from websocket.worker_peer import WorkerPeer
from websocket.worker_session import WorkerSession
from workers.services.control_plane import quarantine_worker, read_tenant


async def _meet_worker(identity: Identity, opened: RunnerSession, ip: str | None) -> WorkerPeer:
    return WorkerPeer(
        runner_id=identity.id,
        runner_uuid=UUID(identity.subject),
        session_epoch=opened.session_epoch,
        tenant=await read_tenant(identity.id),
        ip=ip,
    )


WORKERS: Final[SocketKind[WorkerPeer]] = SocketKind(
    push_type=WORKER_PUSH,
    push_groups=lambda peer: (worker_group(peer.runner_uuid), tenant_group(peer.tenant.group_id)),
    meet=_meet_worker,
    make=lambda peer, send, limits, bucket: WorkerSession(peer, send, limits=limits, bucket=bucket),
    suspect_clones=quarantine_worker,
)
WORKER_PRESENCE: Final = Presence(WORKERS)


@asynccontextmanager
async def serving() -> AsyncIterator[None]:
    """The watch over the worker sockets of this process; part of the runtime."""
    async with watched(WORKER_PRESENCE):
        yield
