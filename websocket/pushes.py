"""Pushes from any process to one socket, through the channel layer. Used by websocket.presence.

Hints only: while Redis is away the socket works on, and heartbeats tell what was missed.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from channels.layers import get_channel_layer
from redis.exceptions import RedisError

log = structlog.get_logger(__name__)

RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 15.0
STOP_AGAIN_S: Final = 0.2
_TROUBLE: Final = (RedisError, OSError, TimeoutError)


async def listen(groups: Sequence[str], kind: str, deliver: Callable[[str], None]) -> None:
    """Hand what is pushed to one of the groups as `kind` to `deliver`; until cancelled."""
    pause_s = RETRY_S
    while True:
        try:
            await _listen_once(groups, kind, deliver)
        except _TROUBLE as error:
            log.info("pushes.not_listening", reason=type(error).__name__)
        await asyncio.sleep(pause_s)
        pause_s = min(MAX_RETRY_S, pause_s * 2)


async def stop(listener: asyncio.Task[None]) -> None:
    """End a listener. A cancel that meets the client library while it connects may get lost in
    there, so it is said again until it is heard.
    """
    while not listener.done():
        listener.cancel()
        await asyncio.wait({listener}, timeout=STOP_AGAIN_S)


async def _listen_once(groups: Sequence[str], kind: str, deliver: Callable[[str], None]) -> None:
    layer = get_channel_layer()
    if layer is None:
        return
    channel = await layer.new_channel()
    try:
        for group in groups:
            await layer.group_add(group, channel)
        # Cancelling `receive` is how this layer learns that the channel is no longer needed.
        while True:
            event = await layer.receive(channel)
            if event.get("type") == kind:
                deliver(event["frame"])
    finally:
        for group in groups:
            await layer.group_discard(group, channel)
