"""How many requests a second one user may send: a bucket of tokens per user, kept in Redis.

Asked for every view of a user, after authentication. A process takes tokens in small lots, so most
requests cost no round trip. Without Redis each process keeps buckets of its own. Runners do not
count: sockets and worker routes have limits of their own.
"""

import functools
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

import redis
import structlog
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from typing_extensions import override

from accounts.models import User
from core.errors import Throttled

if TYPE_CHECKING:
    # DRF loads its default throttles while it defines APIView: at run time that is a circle.
    from rest_framework.views import APIView

log = structlog.get_logger(__name__)

LOT: Final = 10  # tokens per question; what a process may hold unused, so no more than that
_REDIS_TIMEOUT_S: Final = 0.25
_REDIS_PAUSE_S: Final = 5.0  # a Redis that failed is asked again after this long
_MAX_USERS: Final = 10_000  # with a bucket here; who was away longest begins with a full one

# The clock is Redis's own: processes on several machines have to agree on it.
_TAKE: Final = """
local per_s, burst, lot = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local kept = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = burst
if kept[1] and kept[2] then
    level = math.min(burst, tonumber(kept[1]) + math.max(0, now - tonumber(kept[2])) * per_s)
end
local given = math.min(lot, math.floor(level))
level = level - given
redis.call('HSET', KEYS[1], 'level', string.format('%.6f', level), 'at', string.format('%.6f', now))
redis.call('EXPIRE', KEYS[1], math.ceil(burst / per_s) + 1)
return {given, string.format('%.6f', level)}
"""


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket fills at `per_s` and holds `burst`."""

    per_s: float
    burst: float


@dataclass(slots=True)
class LocalBuckets:
    """Buckets in this process's memory."""

    clock: Callable[[], float] = time.monotonic
    _levels: dict[int, tuple[float, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, user_id: int, rate: Rate) -> float:
        """Take one token; the seconds until there is one, 0 when it was there."""
        now = self.clock()
        with self._lock:
            level, seen_at = self._levels.pop(user_id, (rate.burst, now))
            level = min(rate.burst, level + (now - seen_at) * rate.per_s)
            is_there = level >= 1
            self._levels[user_id] = (level - 1 if is_there else level, now)
            while len(self._levels) > _MAX_USERS:
                del self._levels[next(iter(self._levels))]
        return 0.0 if is_there else (1 - level) / rate.per_s


@dataclass(slots=True)
class SharedBuckets:
    """Buckets in Redis, asked for a lot at a time; `local` answers while Redis does not."""

    client: "redis.Redis"
    local: LocalBuckets = field(default_factory=LocalBuckets)
    _lots: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _asked_again_at: float = 0.0

    def take(self, user_id: int, rate: Rate) -> float:
        """As LocalBuckets.take, counted over all processes."""
        with self._lock:
            left = self._lots.get(user_id, 0)
            if left:
                self._lots[user_id] = left - 1
                return 0.0
        answer = self._ask(user_id, rate)
        if answer is None:
            return self.local.take(user_id, rate)
        given, level = answer
        if not given:
            return max(0.001, (1 - level) / rate.per_s)
        self._keep(user_id, given - 1)
        return 0.0

    def _keep(self, user_id: int, tokens: int) -> None:
        with self._lock:
            # Two threads may have asked at once; what one process holds stays one lot.
            self._lots[user_id] = min(LOT, self._lots.pop(user_id, 0) + tokens)
            while len(self._lots) > _MAX_USERS:
                del self._lots[next(iter(self._lots))]

    def _ask(self, user_id: int, rate: Rate) -> tuple[int, float] | None:
        if self.local.clock() < self._asked_again_at:
            return None
        key = f"mitosis:rate:{user_id}"
        try:
            answer = self.client.eval(_TAKE, 1, key, str(rate.per_s), str(rate.burst), str(LOT))
        except (redis.RedisError, OSError) as error:
            self._asked_again_at = self.local.clock() + _REDIS_PAUSE_S
            log.warning("request_rate.redis_unavailable", reason=type(error).__name__)
            return None
        given, level = cast("tuple[int, bytes]", answer)
        return given, float(level)


def count_request(user_id: int) -> None:
    """Count one request of the user; raises Throttled."""
    policy = settings.MITOSIS
    rate = Rate(
        per_s=policy.user_requests_per_s,
        burst=policy.user_requests_per_s * policy.user_requests_saved_s,
    )
    wait_s = shared_buckets(settings.REDIS_URL).take(user_id, rate)
    if wait_s:
        raise Throttled("Too many requests, slow down", retry_after_s=math.ceil(wait_s))


class UserRate(BaseThrottle):
    """Named in DEFAULT_THROTTLE_CLASSES; callers without an account are not counted here."""

    @override
    def allow_request(self, request: Request, view: "APIView") -> bool:
        if isinstance(request.user, User):
            count_request(request.user.pk)
        return True


@functools.lru_cache(maxsize=8)
def shared_buckets(url: str) -> SharedBuckets:
    """The buckets of this process for one Redis."""
    client = redis.Redis.from_url(
        url,
        socket_timeout=_REDIS_TIMEOUT_S,
        socket_connect_timeout=_REDIS_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )
    return SharedBuckets(client)
