"""The asynchronous client: the same Calls, sent without blocking the loop."""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, TypeVar

import httpx2
import msgspec

from mitosis_client.calls import accounts
from mitosis_client.calls.call import Call, Pages, is_last
from mitosis_client.errors import ApiError
from mitosis_client.logs import LogPart, log_part, log_request
from mitosis_client.namespaces import AsyncAccounts, AsyncFleet, AsyncSuites, AsyncTasks
from mitosis_client.stream import READ_TIMEOUT_S, Resumption, StreamEvent
from mitosis_client.transport import (
    MAX_TRIES,
    Patience,
    arguments,
    headers_of,
    read_answer,
    timeouts,
    tls_for,
    unreachable,
)

T = TypeVar("T")


class AsyncClient:
    """A session with one coordinator, for one event loop."""

    def __init__(
        self, url: str, token: str | None = None, *, timeout_s: float | None = None,
        max_tries: int = MAX_TRIES,
    ) -> None:  # fmt: skip
        self.url = url.rstrip("/")
        self._max_tries = max_tries
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            timeout=timeouts(timeout_s),
            headers=headers_of(token),
            verify=tls_for(self.url),
        )
        self.suites = AsyncSuites(self)
        self.tasks = AsyncTasks(self)
        self.fleet = AsyncFleet(self)
        self.accounts = AsyncAccounts(self)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def login(self, username: str, password: str) -> str:
        """Log in and use the token from now on; returns it."""
        token = (await self.send(accounts.login(username, password))).token
        self._http.headers.update(headers_of(token))
        return token

    async def send(self, call: Call[T]) -> T:
        """Make the call, again when that is harmless; raises MitosisError."""
        return read_answer(call, await self.exchange(call))

    async def exchange(self, call: Call[Any]) -> httpx2.Response:
        """As send, but the answer as it came."""
        patience = Patience(is_repeatable=call.is_repeatable, max_tries=self._max_tries)
        while True:
            try:
                response = await self._http.request(call.method, call.path, **arguments(call))
            except httpx2.TransportError as error:
                pause_s = patience.after_error(error)
                if pause_s is None:
                    raise unreachable(self.url, error) from error
            else:
                pause_s = patience.after_answer(response)
                if pause_s is None:
                    return response
            await asyncio.sleep(pause_s)

    async def pages(self, pages: Pages[T]) -> AsyncIterator[T]:
        """Every item of a list, fetched as it is read."""
        offset = 0
        while True:
            answer = await self.send(pages.page(offset, pages.size))
            found = answer[pages.items]
            for item in msgspec.convert(found, list[pages.item]):  # type: ignore[name-defined]  # a type at run time
                yield item
            if is_last(pages, answer):
                return
            offset += len(found)

    async def events(self, path: str, *, last_id: str = "") -> AsyncIterator[StreamEvent]:
        """A stream of server-sent events; comes back with `Last-Event-ID` when it breaks."""
        place = Resumption(last_id)
        while True:
            pause_s: float | None = place.pause_s
            try:
                async with self._http.stream(
                    "GET", path, headers=place.headers, timeout=timeouts(READ_TIMEOUT_S)
                ) as response:
                    if place.is_over(response):
                        return
                    if response.status_code >= 300:
                        await response.aread()
                        place.check(response)
                    async for found in httpx2.EventSource(response):
                        event = place.take(found)
                        if event is not None:
                            yield event
            except httpx2.TransportError as error:
                pause_s = place.pause_after(error)
                if pause_s is None:
                    raise unreachable(self.url, error) from error
            except ApiError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(pause_s or 0)

    async def log(self, uuid: str, stream: str, *, offset: int = 0) -> LogPart:
        """Output of a task from a byte on, as much as is there."""
        return log_part(await self.exchange(log_request(uuid, stream, offset)))
