"""A runner's socket as an ASGI application: open the session, then move frames; nothing else.

A plain application rather than a Channels consumer: Channels asks its layer for a channel before
the accept, so no runner could connect while Redis is away, and its dispatch costs a thread hop
per frame (ADR 0009). Routed by websocket.routing behind the token check.
"""

import ipaddress
from typing import Any

import structlog

from accounts.identity import Identity
from core.errors import DomainError
from core.faults import afault
from websocket.auth import Receive, Scope, Send, refuse
from websocket.presence import Presence

log = structlog.get_logger(__name__)


class RunnerConsumer:
    """Serves the sockets of one presence: `/ws/managers` or `/ws/workers`."""

    def __init__(self, presence: Presence[Any]) -> None:
        self._presence = presence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identity: Identity = scope["identity"]
        await receive()  # websocket.connect
        try:
            peer, opened = await self._presence.open(identity, ip=_address(scope))
        except DomainError as error:
            await refuse(scope, send, error)
            return
        await afault("session.after_epoch_before_accept")
        known_as = {"runner": str(peer.runner_uuid), "epoch": peer.session_epoch}
        log.info("socket.opened", **known_as, ip=peer.ip)
        async with self._presence.joined(peer, identity, opened, send) as session:
            await send({"type": "websocket.accept"})
            await session.run(receive)
        log.info("socket.closed", **known_as)


def _address(scope: Scope) -> str | None:
    """What the audit log can hold; behind a Unix socket there is none."""
    try:
        return str(ipaddress.ip_address((scope.get("client") or ("",))[0]))
    except ValueError:
        return None
