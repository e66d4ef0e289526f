"""What lives as long as a serving process: opened before its first request, closed at its end.

uvicorn announces both moments (ASGI lifespan); daphne does not, so there the first request opens.
A new long-lived part is one more line in `_open_parts`.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

import structlog
from django.conf import settings
from django.urls import get_resolver

from console.live.board import live_board
from core.pg import close_pool, open_pool
from mitosis_site.standby import standing_by
from runners.services.presence import keep_presence
from tasks.dispatcher import close_dispatcher
from tasks.services.manager_beats import close_manager_beats
from tasks.services.manager_claims import close_manager_claims
from websocket.presence import serving as manager_sockets
from websocket.worker_presence import serving as worker_sockets

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
# Any: Django, Channels and the servers each annotate the three arguments differently.
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]

log = structlog.get_logger(__name__)

# New objects, and then rounds, between two looks of the collector. A full look stops the whole
# process: at Python's 700 a submit of 10,000 tasks causes several, each over everything loaded, and
# frames of single tasks, which make some hundred objects each, spent a third of their CPU on it.
_COLLECT_AFTER: Final = (20_000, 5, 20)
_TURN_S: Final = 0.0005


async def _open_parts(stack: AsyncExitStack) -> None:
    """In this order; closed in the reverse one."""
    await stack.enter_async_context(_database_pool())
    await stack.enter_async_context(_statement_batches())
    await stack.enter_async_context(manager_sockets())
    await stack.enter_async_context(worker_sockets())
    await stack.enter_async_context(keep_presence(lease_ttl_s=settings.MITOSIS.lease_ttl_s))
    await stack.enter_async_context(live_board())
    await stack.enter_async_context(standing_by())
    stack.enter_context(_rare_collections())
    stack.enter_context(_quick_turns())


@asynccontextmanager
async def _database_pool() -> AsyncIterator[None]:
    policy = settings.MITOSIS
    await open_pool(
        settings.DATABASE_URL,
        max_size=policy.async_pool_max,
        wait_s=policy.pool_wait_s,
        session_options=settings.PG_SESSION_OPTIONS,
        owns_sessions=not settings.DATABASE_IS_POOLED,
    )
    try:
        yield
    finally:
        await close_pool()


@asynccontextmanager
async def _statement_batches() -> AsyncIterator[None]:
    """Batchers are made by their first use; what they still run needs the pool."""
    try:
        yield
    finally:
        await close_manager_claims()
        await close_manager_beats()
        await close_dispatcher()


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Last, so that what is loaded by now is never looked at again: it stays for the whole life."""
    get_resolver().url_patterns  # noqa: B018 - loads every view, otherwise left to the first request
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def _quick_turns() -> Iterator[None]:
    """Who waits for the interpreter's lock asks for it sooner than Python's 5 ms: the loop comes
    back to it several times for every claim, while a thread decodes somebody's bulk submit.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class Runtime:
    """The parts of one process. Wraps the application that uses them."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._stack: AsyncExitStack | None = None
        self._starting = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if self._stack is None:
            await self._start()
        await self._app(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Answer the server's two announcements."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self._stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _start(self) -> None:
        # The first requests of a daphne process arrive together.
        async with self._starting:
            if self._stack is not None:
                return
            async with AsyncExitStack() as stack:
                await _open_parts(stack)
                self._stack = stack.pop_all()
            log.info("site.started")

    async def _stop(self) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()
            log.info("site.stopped")
