"""The micro-batcher: concurrent calls of one process become one statement.

Nothing waits on purpose: a call that finds a free lane runs at once and alone; what arrives while
every lane is busy forms the next batch. Owned by tasks.dispatcher, one per kind of statement.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import psycopg
from psycopg.errors import UniqueViolation
from psycopg_pool import PoolTimeout

from core.errors import DatabaseUnavailable

Request = TypeVar("Request")
Answer = TypeVar("Answer")

MAX_WAIT_S: Final = 2.0  # how long a call is tried again before its caller hears `try later`
FIRST_PAUSE_S: Final = 0.001  # about one statement: whoever held the row is probably done
MAX_PAUSE_S: Final = 0.05
ALONE_AFTER: Final = 2  # from this try on a call runs in a batch of one, where answers are exact
RERUNS: Final = 3


@dataclass(eq=False)
class _Waiting(Generic[Request, Answer]):
    request: Request
    future: asyncio.Future[Answer]
    since: float
    tries: int = 0


class Batcher(Generic[Request, Answer]):
    """Gathers requests and hands each caller its own answer.

    `run` takes a batch and returns one answer per request, in order; it has to be idempotent,
    because a lost connection makes us run it again. `is_final` says whether an answer settles a
    request or it should be tried again; `weight` is what a request costs of `max_weight`.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Request]], Awaitable[Sequence[Answer]]],
        *,
        is_final: Callable[[Answer], bool],
        weight: Callable[[Request], int] = lambda _: 1,
        max_weight: int = 256,
        lanes: int = 2,
        max_wait_s: float = MAX_WAIT_S,
    ) -> None:
        self._run = run
        self._is_final = is_final
        self._weight = weight
        self._max_weight = max_weight
        self._lanes = lanes
        self._max_wait_s = max_wait_s
        self._queue: deque[_Waiting[Request, Answer]] = deque()
        self._alone: deque[_Waiting[Request, Answer]] = deque()
        self._flushes: set[asyncio.Task[None]] = set()
        self._pauses: set[asyncio.TimerHandle] = set()
        self._is_closed = False

    async def submit(self, request: Request) -> Answer:
        """The answer to one request. Cancelling a call that has not been sent removes it."""
        return await self._enqueue(request)

    async def submit_all(self, requests: Iterable[Request]) -> list[Answer]:
        """The answers to many requests, in order; the first error is raised."""
        return await asyncio.gather(*[self._enqueue(request) for request in requests])

    async def close(self) -> None:
        """Refuse what waits, let running statements end."""
        self._is_closed = True
        for pause in self._pauses:
            pause.cancel()
        for queue in (self._queue, self._alone):
            while queue:
                _fail([queue.popleft()], DatabaseUnavailable("The coordinator is stopping"))
        await asyncio.gather(*self._flushes, return_exceptions=True)

    def _enqueue(self, request: Request) -> asyncio.Future[Answer]:
        if self._is_closed:
            raise DatabaseUnavailable("The coordinator is stopping")
        loop = asyncio.get_running_loop()
        waiting = _Waiting[Request, Answer](request, loop.create_future(), loop.time())
        self._queue.append(waiting)
        self._kick()
        return waiting.future

    def _kick(self) -> None:
        while len(self._flushes) < self._lanes and (self._queue or self._alone):
            flush = asyncio.create_task(self._flush())
            self._flushes.add(flush)
            flush.add_done_callback(self._flush_ended)
            if len(self._queue) <= 1:
                # The task just made takes it; a second one would find nothing.
                return

    def _flush_ended(self, flush: asyncio.Task[None]) -> None:
        self._flushes.discard(flush)
        if not self._is_closed:
            self._kick()

    async def _flush(self) -> None:
        while batch := self._take():
            await self._serve(batch)

    def _take(self) -> list[_Waiting[Request, Answer]]:
        while self._alone:
            waiting = self._alone.popleft()
            if not waiting.future.done():
                return [waiting]
        batch: list[_Waiting[Request, Answer]] = []
        weight = 0
        while self._queue:
            waiting = self._queue[0]
            if waiting.future.done():  # its caller was cancelled
                self._queue.popleft()
                continue
            weight += self._weight(waiting.request)
            if batch and weight > self._max_weight:
                break
            batch.append(self._queue.popleft())
        return batch

    async def _serve(self, batch: list[_Waiting[Request, Answer]]) -> None:
        try:
            answers = await self._run_safely([waiting.request for waiting in batch])
        except (psycopg.Error, DatabaseUnavailable) as error:
            if len(batch) > 1 and not isinstance(error, DatabaseUnavailable):
                # One of them cannot be written (a NUL, a constraint): the others must not suffer.
                for waiting in batch:
                    await self._serve([waiting])
                return
            _fail(batch, error)
        except Exception as error:  # noqa: BLE001 - a bug: every caller gets it, the batcher lives
            _fail(batch, error)
        else:
            for waiting, answer in zip(batch, answers, strict=True):
                self._deliver(waiting, answer)

    async def _run_safely(self, requests: Sequence[Request]) -> Sequence[Answer]:
        """Run again where that is the right answer: the statements are idempotent."""
        for rerun in range(RERUNS):
            try:
                return await self._run(requests)
            except DatabaseUnavailable as error:
                # Nobody gets a connection: more waiting would only outlast the callers' patience.
                if rerun == RERUNS - 1 or isinstance(error.__cause__, PoolTimeout):
                    raise
            except UniqueViolation:
                # Two statements granted the same slot; the one that lost sees the other's now.
                if rerun == RERUNS - 1:
                    raise
            await asyncio.sleep(MAX_PAUSE_S * (rerun + random.random()))  # noqa: S311 - jitter
        raise AssertionError("unreachable: the last run returns or raises")

    def _deliver(self, waiting: _Waiting[Request, Answer], answer: Answer) -> None:
        if waiting.future.done():
            return
        loop = asyncio.get_running_loop()
        is_patient = loop.time() - waiting.since < self._max_wait_s and not self._is_closed
        if self._is_final(answer) or not is_patient:
            waiting.future.set_result(answer)
            return
        waiting.tries += 1
        longest = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**waiting.tries)
        pause = loop.call_later(
            random.uniform(0, longest),  # noqa: S311 - jitter
            self._again,
            waiting,
        )
        self._pauses.add(pause)
        loop.call_later(longest, self._pauses.discard, pause)

    def _again(self, waiting: _Waiting[Request, Answer]) -> None:
        (self._alone if waiting.tries >= ALONE_AFTER else self._queue).append(waiting)
        self._kick()


def _fail(batch: Iterable[_Waiting[Request, Answer]], error: Exception) -> None:
    for waiting in batch:
        if not waiting.future.done():
            waiting.future.set_exception(error)
