"""Hints for people who watch a task: something new can be read. Never the news itself.

Sent through the channel layer, received by the event streams of any process. A lost hint costs a
watcher the second until its next look; a Redis that is away is logged and fails nobody.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from uuid import UUID

import structlog
from channels.exceptions import ChannelFull
from channels.layers import get_channel_layer
from redis.exceptions import RedisError

log = structlog.get_logger(__name__)

HINT: Final = "task.output"
LAYER_TIMEOUT_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 5.0  # a subscription to a Redis that hangs gives up before this
_TROUBLE: Final = (RedisError, ChannelFull, OSError, TimeoutError)


class Hints:
    """What arrived for one watcher since it last looked; only the newest place per stream."""

    def __init__(self) -> None:
        self._arrived = asyncio.Event()
        self._output: dict[tuple[int, str], int] = {}

    def note(self, message: dict[str, Any]) -> None:
        place = (int(message["attempt"]), str(message["stream"]))
        self._output[place] = max(self._output.get(place, 0), int(message["end"]))
        self._arrived.set()

    async def wait(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()

    def take(self) -> dict[tuple[int, str], int]:
        """(attempt, stream) to how many bytes there are now."""
        self._arrived.clear()
        taken, self._output = self._output, {}
        return taken


async def announce_output(task_uuid: UUID, attempt: int, stream: str, end: int) -> None:
    """The output of an attempt can now be read up to `end`."""
    layer = get_channel_layer()
    if layer is None:
        return
    message = {"type": HINT, "attempt": attempt, "stream": stream, "end": end}
    try:
        async with asyncio.timeout(LAYER_TIMEOUT_S):
            await layer.group_send(_group(task_uuid), message)
    except _TROUBLE as error:
        log.info("live.hint_lost", reason=type(error).__name__)


@asynccontextmanager
async def watching(task_uuid: UUID) -> AsyncIterator[Hints]:
    """Collect the hints about one task while the block runs; it begins when we are listening."""
    hints, is_over, is_set_up = Hints(), asyncio.Event(), asyncio.Event()
    listener = asyncio.create_task(_listen(_group(task_uuid), hints, is_over, is_set_up))
    try:
        # A hint is not repeated: what came before would be missed by whoever looks only now.
        with suppress(TimeoutError):
            async with asyncio.timeout(LAYER_TIMEOUT_S):
                await is_set_up.wait()
        yield hints
    finally:
        # Not cancelled while it subscribes: the layer may swallow that and keep the subscription.
        is_over.set()
        await asyncio.wait({listener}, timeout=CLOSE_TIMEOUT_S)
        listener.cancel()


async def _listen(
    group: str, hints: Hints, is_over: asyncio.Event, is_set_up: asyncio.Event
) -> None:
    layer = get_channel_layer()
    if layer is None:
        is_set_up.set()
        return
    try:
        channel = await layer.new_channel()
        await layer.group_add(group, channel)
    except _TROUBLE as error:
        log.info("live.not_listening", reason=type(error).__name__)
        return
    finally:
        is_set_up.set()
    receiver = asyncio.create_task(_receive(layer, channel, hints))
    # Cancelling a `receive` that has begun is how this layer learns that the channel is not needed
    # any more; one that never ran would leave it behind.
    await asyncio.sleep(0)
    await is_over.wait()
    receiver.cancel()
    await asyncio.gather(receiver, return_exceptions=True)
    with suppress(*_TROUBLE):
        await layer.group_discard(group, channel)


async def _receive(layer: Any, channel: str, hints: Hints) -> None:
    while True:
        hints.note(await layer.receive(channel))


def _group(task_uuid: UUID) -> str:
    return f"task.{task_uuid}"
