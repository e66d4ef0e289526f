"""One stream of server-sent events per open page: `region` replaces a part of it, `data` feeds its
charts, `output` says that a task wrote more. Nothing is resumed: a reader that comes back gets the
present state.

Shares the machinery of the API's event streams. Between two looks a stream holds no thread and no
connection; who may no longer read is found out within five seconds.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final
from uuid import UUID

import msgspec
from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.http.response import HttpResponseNotAllowed

from accounts.models import User
from accounts.request_rate import count_request
from console.filters import failure_query, manager_query, suite_query, task_query
from console.live.board import Feed, get_board
from console.panels.suite import topics_of
from console.panels.topics import Topic
from console.viewer import Viewer, see_manager, see_suite, see_task, viewer_of
from core.errors import DomainError, NotFound, PermissionDenied
from core.pg import get_pool, load_sql
from tasks.event_stream import Frame, stream_response
from tasks.live import Hints, watching

OUTPUT: Final = "output"
_STANDING: Final = load_sql("console", "standing")
_REACH: Final = load_sql("console", "reach")
_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Watch:
    """What a page's stream is about, and what its reader has to keep reach of."""

    topics: Sequence[Topic]
    group_id: int | None = None
    runner_id: int | None = None
    output_of: UUID | None = None  # a task whose output the reader may read


class PageSource:
    """Frames for one open page."""

    def __init__(self, user_id: int, viewer: Viewer, watch: Watch) -> None:
        self._user_id = user_id
        self._viewer = viewer
        self._watch = watch
        self._stack = AsyncExitStack()
        self._news = asyncio.Event()
        self._feeds: list[Feed] | None = None
        self._hints: Hints | None = None
        self._sent: dict[tuple[Topic, str], int] = {}
        self.is_over = False

    async def poll(self) -> list[Frame]:
        if self._feeds is None:
            await self._open()
        self._news.clear()
        feeds = self._feeds or []
        self.is_over = any(feed.is_gone for feed in feeds)
        return [*self._regions(feeds), *self._output()]

    async def permit(self) -> None:
        """Raises DomainError once the user is locked, or the thing or the whole view is not his."""
        rows = await get_pool().fetch(_STANDING, {"user_id": self._user_id})
        if not rows or not rows[0][0]:
            raise PermissionDenied
        is_operator = bool(rows[0][1])
        if is_operator is not (self._viewer.member_id is None):
            raise PermissionDenied
        watch = self._watch
        if is_operator or (watch.group_id is None and watch.runner_id is None):
            return
        ids = {"group_id": watch.group_id, "runner_id": watch.runner_id}
        [[is_reached]] = await get_pool().fetch(_REACH, {"user_id": self._user_id, **ids})
        if not is_reached:
            raise NotFound("This is not for you any more")

    async def wait(self, timeout_s: float) -> None:
        if self._hints is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            return
        waiting = {
            asyncio.create_task(self._news.wait()),
            asyncio.create_task(self._hints.wait(timeout_s)),
        }
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def close(self) -> None:
        await self._stack.aclose()

    async def _open(self) -> None:
        board = get_board().watching(self._watch.topics, self._news)
        self._feeds = await self._stack.enter_async_context(board)
        if self._watch.output_of is not None:
            hints = watching(self._watch.output_of)
            self._hints = await self._stack.enter_async_context(hints)

    def _regions(self, feeds: Sequence[Feed]) -> list[Frame]:
        frames = []
        for feed in feeds:
            for name, version in feed.versions.items():
                if self._sent.get((feed.topic, name)) != version:
                    self._sent[feed.topic, name] = version
                    frames.append(feed.frames[name])
        return frames

    def _output(self) -> list[Frame]:
        taken = {} if self._hints is None else self._hints.take()
        return [
            Frame(OUTPUT, _encoder.encode({"attempt": attempt, "stream": stream, "available": end}))
            for (attempt, stream), end in taken.items()
        ]


Finder = Callable[..., Watch]
View = Callable[..., Coroutine[Any, Any, HttpResponseBase]]


def stream(find: Finder) -> View:
    """A view for GET by session. `find` is synchronous and raises DomainError for strangers."""

    @wraps(find)
    async def view(request: HttpRequest, **parameters: Any) -> HttpResponseBase:
        if request.method != "GET":
            return HttpResponseNotAllowed(["GET"])
        try:
            user, watch = await sync_to_async(_admit)(request, find, parameters)
            return stream_response(PageSource(user.pk, viewer_of(user), watch), user_id=user.pk)
        except DomainError as error:
            return HttpResponse(status=error.http_status, headers={"Cache-Control": "no-store"})

    return view


def _admit(request: HttpRequest, find: Finder, parameters: dict[str, Any]) -> tuple[User, Watch]:
    try:
        user = request.user
        if not isinstance(user, User) or not user.is_active:
            raise PermissionDenied
        count_request(user.pk)
        return user, find(user, request.META.get("QUERY_STRING", ""), **parameters)
    finally:
        # The stream lives for an hour and must not keep the connection that let it in.
        close_old_connections()


@stream
def overview(user: User, query: str) -> Watch:
    viewer = viewer_of(user)
    return Watch([Topic("overview", viewer=viewer), Topic("throughput", viewer=viewer)])


@stream
def suites(user: User, query: str) -> Watch:
    suite_query(QueryDict(query))
    return Watch([Topic("suites", query, viewer_of(user))])


@stream
def tasks(user: User, query: str) -> Watch:
    task_query(QueryDict(query))
    return Watch([Topic("tasks", query, viewer_of(user))])


@stream
def managers(user: User, query: str) -> Watch:
    manager_query(QueryDict(query))
    return Watch([Topic("managers", query, viewer_of(user))])


@stream
def failures(user: User, query: str) -> Watch:
    failure_query(QueryDict(query))
    return Watch([Topic("failures", query, viewer_of(user))])


@stream
def suite(user: User, query: str, suite_uuid: UUID) -> Watch:
    seen = see_suite(user, suite_uuid)
    return Watch(topics_of(suite_uuid), group_id=seen.thing.group_id)


@stream
def manager(user: User, query: str, manager_uuid: UUID) -> Watch:
    seen = see_manager(user, manager_uuid)
    # Which of its suites may be named depends on who looks.
    topic = Topic("manager", str(manager_uuid), viewer_of(user))
    return Watch([topic], runner_id=seen.thing.pk)


@stream
def task(user: User, query: str, task_uuid: UUID) -> Watch:
    seen = see_task(user, task_uuid)
    return Watch(
        [Topic("task", str(task_uuid))],
        group_id=seen.thing.group_id,
        output_of=task_uuid if seen.is_member else None,
    )
