"""How often a password may be guessed: attempts per minute for one address and one user name.

Counted in Redis, so that all processes share the count. Without Redis each process counts for
itself: a dead Redis neither locks everybody out nor opens the door. Used by accounts.services.
"""

import functools
import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import redis
import structlog
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from core.errors import Throttled

log = structlog.get_logger(__name__)

Answer = TypeVar("Answer")

WINDOW_S = 60
_REDIS_TIMEOUT_S = 0.25  # a login waits no longer for a Redis that hangs
_REDIS_PAUSE_S = 5.0  # and the next ones do not wait at all: it is asked again after this long
_MAX_LOCAL_KEYS = 10_000  # bounds the memory an attacker with many names can take


@dataclass(frozen=True, slots=True)
class Count:
    """Attempts in the present window, this one included, and how long the window still lasts."""

    attempts: int
    seconds_left: int


class Counter(Protocol):
    def add(self, key: str) -> Count: ...
    def clear(self, key: str) -> None: ...


@dataclass(slots=True)
class LocalCounter:
    """Fixed windows in this process's memory."""

    clock: Callable[[], float] = time.monotonic
    _windows: dict[str, tuple[float, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, key: str) -> Count:
        now = self.clock()
        with self._lock:
            ends_at, attempts = self._windows.pop(key, (now + WINDOW_S, 0))
            if ends_at <= now:
                ends_at, attempts = now + WINDOW_S, 0
            self._windows[key] = (ends_at, attempts + 1)
            while len(self._windows) > _MAX_LOCAL_KEYS:
                del self._windows[next(iter(self._windows))]
        return Count(attempts + 1, max(1, round(ends_at - now)))

    def clear(self, key: str) -> None:
        with self._lock:
            self._windows.pop(key, None)


@dataclass(slots=True)
class RedisCounter:
    """Fixed windows in Redis; `local` counts instead while Redis does not answer."""

    client: "redis.Redis"
    local: LocalCounter = field(default_factory=LocalCounter)
    _asked_again_at: float = 0.0

    def add(self, key: str) -> Count:
        answer = self._ask(lambda: self._count(key))
        return self.local.add(key) if answer is None else answer

    def clear(self, key: str) -> None:
        self.local.clear(key)
        self._ask(lambda: self.client.delete(key))

    def _count(self, key: str) -> Count:
        with self.client.pipeline(transaction=True) as pipe:
            pipe.set(key, 0, ex=WINDOW_S, nx=True)
            pipe.incr(key)
            pipe.ttl(key)
            _, attempts, seconds_left = pipe.execute()
        return Count(int(attempts), max(1, int(seconds_left)))

    def _ask(self, question: Callable[[], Answer]) -> Answer | None:
        if self.local.clock() < self._asked_again_at:
            return None
        try:
            return question()
        except (redis.RedisError, OSError) as error:
            self._asked_again_at = self.local.clock() + _REDIS_PAUSE_S
            log.warning("throttle.redis_unavailable", reason=type(error).__name__)
            return None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One counted attempt. A success gives the whole window back: only guessing is slowed."""

    _counter: Counter
    _key: str

    def succeeded(self) -> None:
        self._counter.clear(self._key)


@dataclass(frozen=True, slots=True)
class LoginThrottle:
    """Refuses the attempt after `limit` in one window."""

    counter: Counter
    limit: int

    def attempt(self, *, ip: str | None, username: str) -> Attempt:
        """Count one attempt before any password is looked at; raises Throttled."""
        # Hashed: names are what users type, sometimes their password, and keys are readable.
        digest = hashlib.sha256(f"{ip or ''}\n{username}".encode("utf-8", "surrogatepass"))
        key = f"mitosis:login:{digest.hexdigest()}"
        count = self.counter.add(key)
        if count.attempts > self.limit:
            message = "Too many login attempts, try again later"
            raise Throttled(message, retry_after_s=count.seconds_left)
        return Attempt(self.counter, key)


def login_throttle() -> LoginThrottle:
    """The throttle of this installation."""
    return LoginThrottle(redis_counter(settings.REDIS_URL), settings.MITOSIS.login_per_minute)


@functools.lru_cache(maxsize=8)
def redis_counter(url: str) -> RedisCounter:
    """The counter of this process for one Redis."""
    client = redis.Redis.from_url(
        url,
        socket_timeout=_REDIS_TIMEOUT_S,
        socket_connect_timeout=_REDIS_TIMEOUT_S,
        # The library's own retries would hold a login for 4 s against a dead server (measured).
        retry=Retry(NoBackoff(), 0),
    )
    return RedisCounter(client)
