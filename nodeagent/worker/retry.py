"""Waiting between tries: full-jitter backoff, and the loop that uses it.

Pure arithmetic plus one loop; called wherever the worker talks to the coordinator or the store.
Full jitter, because a fleet that lost its coordinator must not come back in step.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import structlog

from nodeagent.errors import CoordinatorUnavailable, TransientError

T = TypeVar("T")

log = structlog.stdlib.get_logger(__name__)

# A coordinator that asks for more patience than this gets this: tasks are waiting.
_MAX_RETRY_AFTER_S = 60.0
_random = random.SystemRandom()


class Backoff(msgspec.Struct, frozen=True):
    """Delays drawn evenly between `floor_s` and a ceiling that doubles up to `cap_s`."""

    base_s: float = 0.5
    cap_s: float = 30.0
    floor_s: float = 0.05

    def delay_s(self, failures: int, error: TransientError | None = None) -> float:
        """How long to wait after that many failures in a row (from 1)."""
        # 2**64 would overflow nothing but means nothing either.
        ceiling = min(self.cap_s, self.base_s * 2.0 ** min(failures - 1, 32))
        delay = max(self.floor_s, _random.uniform(0.0, ceiling))
        asked = error.retry_after_s if isinstance(error, CoordinatorUnavailable) else None
        return delay if asked is None else min(_MAX_RETRY_AFTER_S, asked + delay)


def jittered(interval_s: float, spread: float = 0.2) -> float:
    """`interval_s` give or take `spread`, so that equal workers drift apart."""
    return interval_s * _random.uniform(1.0 - spread, 1.0 + spread)


async def persist(
    operation: Callable[[], Awaitable[T]], *, what: str, backoff: Backoff | None = None
) -> T:
    """Repeat `operation` until it does not fail with a TransientError; anything else is raised.

    Only for operations that may be repeated. Cancel it to give up.
    """
    policy = backoff or Backoff()
    failures = 0
    while True:
        try:
            result = await operation()
        except TransientError as error:
            failures += 1
            delay_s = policy.delay_s(failures, error)
            log.warning(
                "retry.waiting",
                what=what,
                failures=failures,
                delay_s=round(delay_s, 2),
                error=str(error),
            )
            await asyncio.sleep(delay_s)
        else:
            if failures:
                log.info("retry.succeeded", what=what, failures=failures)
            return result
