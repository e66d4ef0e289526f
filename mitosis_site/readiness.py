"""Can this coordinator work? Asks PostgreSQL, Redis and S3 at the same time, each with a deadline.

Every probe opens its own connection: a busy pool is not a broken database. Details are our own
words, never an exception's text, because anybody may read them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx2
import psycopg
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from mitosis_site.object_store import ObjectStore, probe_urls

# A cancelled probe gets this long to close its socket; then the answer goes out without it.
CANCEL_S: Final = 0.2
# S3 services forgive a clock that is a quarter of an hour off. A signature that lived shorter would
# be over when it is made on a slow clock, and a good key would look refused.
PROBE_LIFE_S: Final = 900

Probe = Callable[[], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Addresses to ask."""

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    store: ObjectStore
    # A pooler has to set the limits of sessions, which are set by ourselves otherwise.
    is_pooled: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    ok: bool
    detail: str


async def check_readiness(needs: Dependencies, *, limit_s: float) -> Mapping[str, Check]:
    """One answer per dependency, after at most `limit_s` and a little."""
    probes: dict[str, Awaitable[str]] = {
        "postgres": _ask_postgres(needs.database_url, limit_s, is_pooled=needs.is_pooled),
        "redis": _ask_redis(needs.redis_url, limit_s),
        "s3": _ask_s3(needs.store, limit_s),
    }
    tasks = {name: asyncio.ensure_future(probe) for name, probe in probes.items()}
    _, hanging = await asyncio.wait(tasks.values(), timeout=limit_s)
    for task in hanging:
        task.cancel()
    if hanging:
        # psycopg sends a cancel request to a server that hangs and would wait for its answer.
        await asyncio.wait(hanging, timeout=CANCEL_S)
    return {name: _verdict(task, limit_s) for name, task in tasks.items()}


def _verdict(task: "asyncio.Future[str]", limit_s: float) -> Check:
    if not task.done() or task.cancelled():
        return Check(ok=False, detail=f"no answer within {limit_s:g} s")
    problem = task.result()
    return Check(ok=not problem, detail=problem or "ok")


async def _ask_postgres(url: str, limit_s: float, *, is_pooled: bool) -> str:
    try:
        connection = await psycopg.AsyncConnection.connect(
            url, autocommit=True, connect_timeout=max(2, int(limit_s)), application_name="mitosis"
        )
        async with connection:
            return await _limits_problem(connection, is_pooled=is_pooled)
    except psycopg.errors.InvalidPassword:
        return "the server refused our login"
    except psycopg.errors.ConnectionTimeout:
        return f"no answer within {limit_s:g} s"
    except psycopg.OperationalError:
        return "no connection"
    except psycopg.Error:
        return "the server refused a query"


async def _limits_problem(
    connection: "psycopg.AsyncConnection[tuple[object, ...]]", *, is_pooled: bool
) -> str:
    cursor = await connection.execute("SELECT current_setting('lock_timeout') <> '0'")
    has_limits = await cursor.fetchone() == (True,)
    if is_pooled and not has_limits:
        return "sessions of the pooler have no lock_timeout: set it in its connect_query"
    return ""


async def _ask_redis(url: str, limit_s: float) -> str:
    client = Redis.from_url(
        url,
        socket_connect_timeout=limit_s,
        socket_timeout=limit_s,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        async with client:
            await client.ping()
    except AuthenticationError:
        return "the server refused our login"
    except (RedisTimeoutError, TimeoutError):
        return f"no answer within {limit_s:g} s"
    except (RedisConnectionError, OSError):
        return "no connection"
    except RedisError:
        return "the server refused a command"
    return ""


async def _ask_s3(store: ObjectStore, limit_s: float) -> str:
    # The first call builds a client from files, so it stays off the loop.
    urls = await asyncio.to_thread(probe_urls, store, expires_s=PROBE_LIFE_S)
    try:
        async with httpx2.AsyncClient(timeout=limit_s, trust_env=False) as client:
            for bucket, url in urls.items():
                problem = _bucket_problem(bucket, (await client.head(url)).status_code)
                if problem:
                    return problem
    except httpx2.TimeoutException:
        return f"no answer within {limit_s:g} s"
    except httpx2.HTTPError:
        return "no connection"
    return ""


def _bucket_problem(bucket: str, status: int) -> str:
    if status == 404:
        return f"bucket {bucket} is missing"
    if status in {401, 403}:
        return f"access to bucket {bucket} is denied"
    return "" if status < 400 else f"the service answered with status {status}"
