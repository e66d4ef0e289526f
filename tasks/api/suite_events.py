"""What happens in a suite, as server-sent events: every task's steps, and the suite's own numbers.

`node.state` carries a cursor as its id, so a reader that comes back with `Last-Event-ID` misses
nothing; `suite.state` is news of the moment: sent first and whenever a number has changed.
"""

import asyncio
from typing import Final
from uuid import UUID

import msgspec
from django.http import HttpRequest, HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.schema import Problem
from accounts.views import UserView
from core.errors import NotFound
from tasks.api.async_views import Caller
from tasks.api.events import STATE, event_body
from tasks.event_stream import Frame, stream_response
from tasks.selectors_events import uuids_of_runners, uuids_of_tasks
from tasks.selectors_watch import WatchedSuite, find_watched_suite
from tasks.services.events import newest_cursor, read_suite_events

SUITE: Final = "suite.state"
NEWEST: Final = "newest"
_encoder: Final = msgspec.json.Encoder()
# One server-sent event, as its fields are named on the wire.
SUITE_EVENT: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "For `Last-Event-ID`; not on `suite.state`."},
        "event": {"type": "string", "enum": [STATE, SUITE]},
        "data": {"type": "string", "description": "JSON: a task's step, or the suite's numbers."},
    },
    "required": ["event", "data"],
}


class SuiteEventsDocs(UserView):
    """Describes the route in the OpenAPI document; never called."""

    @extend_schema(
        summary="What happens in a suite, as server-sent events",
        parameters=[
            OpenApiParameter("suite_uuid", OpenApiTypes.UUID, OpenApiParameter.PATH),
            OpenApiParameter("Last-Event-ID", OpenApiTypes.STR, OpenApiParameter.HEADER),
            OpenApiParameter(
                "last_event_id",
                OpenApiTypes.STR,
                description="As the header. Empty: from the first event; `newest`: from now.",
            ),
        ],
        responses={
            (200, "text/event-stream"): SUITE_EVENT,
            "4XX": OpenApiResponse(Problem, description="Refused."),
            503: OpenApiResponse(Problem, description="A store does not answer; try again."),
        },
    )
    def get(self, request: Request) -> Response:
        raise NotImplementedError


async def suite_events(request: HttpRequest, caller: Caller, suite_uuid: UUID) -> HttpResponseBase:
    """`GET /suites/{uuid}/events`; a suite can always be reopened, so the stream has no end."""
    watched = await _watched(caller, suite_uuid)
    cursor = request.headers.get("Last-Event-ID") or request.GET.get("last_event_id") or ""
    if cursor == NEWEST:
        cursor = await newest_cursor()
    else:
        # A cursor that is none of ours is refused before the stream begins.
        await read_suite_events(watched.id, cursor=cursor, max_events=1)
    source = SuiteSource(caller, suite_uuid, watched.id, cursor)
    return stream_response(source, user_id=caller.user_id)


class SuiteSource:
    """The events of one suite behind a cursor, for one reader."""

    is_over = False

    def __init__(self, caller: Caller, suite_uuid: UUID, suite_id: int, cursor: str) -> None:
        self._caller = caller
        self._suite_uuid = suite_uuid
        self._suite_id = suite_id
        self._cursor = cursor
        self._shown: WatchedSuite | None = None

    async def poll(self) -> list[Frame]:
        page = await read_suite_events(self._suite_id, cursor=self._cursor)
        runners = await uuids_of_runners({e.runner_id for e in page.events if e.runner_id})
        tasks = await uuids_of_tasks({e.task_id for e in page.events if e.task_id})
        frames = [
            Frame(
                STATE,
                _encoder.encode(
                    {**event_body(event, runners), "task_uuid": tasks.get(event.task_id or 0)}
                ),
                id=event.cursor,
            )
            for event in page.events
        ]
        self._cursor = page.cursor
        now = await _watched(self._caller, self._suite_uuid)
        if now != self._shown:
            self._shown = now
            frames.append(Frame(SUITE, _encoder.encode(now.shown())))
        return frames

    async def permit(self) -> None:
        await self._caller.recheck()

    async def wait(self, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)

    async def close(self) -> None:
        """Nothing listens."""


async def _watched(caller: Caller, suite_uuid: UUID) -> WatchedSuite:
    found = await find_watched_suite(caller.user_id, suite_uuid)
    if found is None:
        raise NotFound(f"Suite {suite_uuid} not found")
    return found
