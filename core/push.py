"""The only way domain code reaches a socket: encode now, send after commit, expect nothing.

A push is a hint. An idle agent asks by itself every 15 s, so a lost one costs seconds; a channel
layer that is away is logged and never fails the request. Sync code uses the `*_on_commit`
functions, async code (which has no Django transaction) awaits the `push_*` ones.

A manager's consumer joins `manager_group(uuid)` and ALL_MANAGERS and receives
`{"type": "manager.push", "frame": "<json>"}`; a direct worker's joins `worker_group(uuid)` and
`tenant_group(id)` and receives hints (workers.hints) as "worker.push".
"""

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import Final
from uuid import UUID

import msgspec
import structlog
from asgiref.sync import async_to_sync
from channels.exceptions import ChannelFull
from channels.layers import get_channel_layer
from django.db import transaction
from redis.exceptions import RedisError

from mitosis_protocol.limits import MAX_FRAME_BYTES

log = structlog.get_logger(__name__)

MANAGER_PUSH: Final = "manager.push"  # Channels calls the consumer's `manager_push`
WORKER_PUSH: Final = "worker.push"
ALL_MANAGERS: Final = "managers"
SEND_TIMEOUT_S: Final = 1.0  # a hung Redis may cost a request this much, once
# After a failure nothing is tried for this long: during an outage requests must not queue up
# behind the timeout. Short, because pickup falls back to polling meanwhile.
PAUSE_AFTER_FAILURE_S: Final = 2.0

_encoder: Final = msgspec.json.Encoder()
_paused_until = float("-inf")


def manager_group(uuid: UUID) -> str:
    """The channel-layer group of one manager's sockets."""
    return f"manager.{uuid}"


def worker_group(uuid: UUID) -> str:
    """The channel-layer group of one direct worker's sockets."""
    return f"worker.{uuid}"


def tenant_group(group_id: int) -> str:
    """The channel-layer group of all sockets of direct workers that serve one group."""
    return f"tenant.{group_id}"


def to_manager_on_commit(uuid: UUID, message: msgspec.Struct) -> None:
    """Hint one manager when the current transaction commits, or at once outside of one."""
    _on_commit([manager_group(uuid)], MANAGER_PUSH, message)


def to_managers_on_commit(uuids: Iterable[UUID], message: msgspec.Struct) -> None:
    """The same hint for several managers, sent together."""
    _on_commit([manager_group(uuid) for uuid in uuids], MANAGER_PUSH, message)


def to_worker_on_commit(uuid: UUID, message: msgspec.Struct) -> None:
    """Hint one direct worker."""
    _on_commit([worker_group(uuid)], WORKER_PUSH, message)


def to_tenants_on_commit(group_ids: Iterable[int], message: msgspec.Struct) -> None:
    """Hint all direct workers that serve these groups."""
    _on_commit([tenant_group(group_id) for group_id in group_ids], WORKER_PUSH, message)


def broadcast_on_commit(message: msgspec.Struct) -> None:
    """Hint every connected manager."""
    _on_commit([ALL_MANAGERS], MANAGER_PUSH, message)


async def push_to_manager(uuid: UUID, message: msgspec.Struct) -> None:
    """As `to_manager_on_commit`, for async code whose statement has committed already."""
    await _send([manager_group(uuid)], MANAGER_PUSH, _encode(message))


async def push_to_managers(uuids: Iterable[UUID], message: msgspec.Struct) -> None:
    """As `to_managers_on_commit`, for async code."""
    await _send([manager_group(uuid) for uuid in uuids], MANAGER_PUSH, _encode(message))


async def push_to_worker(uuid: UUID, message: msgspec.Struct) -> None:
    """As `to_worker_on_commit`, for async code."""
    await _send([worker_group(uuid)], WORKER_PUSH, _encode(message))


async def push_broadcast(message: msgspec.Struct) -> None:
    """As `broadcast_on_commit`, for async code."""
    await _send([ALL_MANAGERS], MANAGER_PUSH, _encode(message))


def _on_commit(groups: list[str], kind: str, message: msgspec.Struct) -> None:
    # Encoded here, so that a message that cannot be encoded fails at its author.
    frame = _encode(message)
    if groups:
        transaction.on_commit(partial(async_to_sync(_send), groups, kind, frame))


def _encode(message: msgspec.Struct) -> str:
    data = _encoder.encode(message)
    if len(data) > MAX_FRAME_BYTES:
        raise ValueError(f"a push of {len(data)} bytes does not fit a frame")
    return data.decode()


async def _send(groups: list[str], kind: str, frame: str) -> None:
    global _paused_until  # noqa: PLW0603 - what this process knows about the layer
    layer = get_channel_layer()
    if layer is None or time.monotonic() < _paused_until:
        log.info("push.skipped", groups=len(groups))
        return
    event = {"type": kind, "frame": frame}
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            for group in groups:
                await layer.group_send(group, event)
    except (RedisError, ChannelFull, OSError, TimeoutError) as error:
        _paused_until = time.monotonic() + PAUSE_AFTER_FAILURE_S
        log.warning("push.lost", groups=len(groups), reason=type(error).__name__)
