"""What happened: one task as server-sent events, all of the caller's groups as pages of JSON.

`node.state` says where a task stands, `node.result.delta` that there is more output to read, or
brings the fragments of another channel themselves (`data.chunks`); both name a node's place in its
chain (`middleware`), if it has one. The id of an event is the task's `seq`; a reader that comes
back with `Last-Event-ID` misses nothing.
"""

import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final
from uuid import UUID

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from core.errors import InvalidInput
from mitosis_protocol.timestamps import format_rfc3339
from tasks.api.async_views import Caller
from tasks.api.info import node_trace
from tasks.enums import EventKind
from tasks.event_stream import Frame, stream_response
from tasks.live import Hints, watching
from tasks.selectors import absent
from tasks.selectors_events import (
    Watched,
    find_watched,
    groups_of_user,
    uuids_of_runners,
    uuids_of_suites,
    uuids_of_tasks,
)
from tasks.services.events import (
    MAX_EVENTS,
    Event,
    newest_cursor,
    read_group_events,
    read_task_events,
)

STATE: Final = "node.state"
OUTPUT: Final = "node.result.delta"
_MAX_SEQ: Final = 2**31 - 1
_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_encoder: Final = msgspec.json.Encoder()


async def task_events(request: HttpRequest, caller: Caller, task_uuid: UUID) -> HttpResponseBase:
    """`GET /tasks/{uuid}/events`; 204 tells a browser that there is nothing to come back for."""
    watched = await find_watched(caller.user_id, task_uuid)
    if watched is None:
        raise absent(task_uuid)
    seq = _last_seen(request)
    source = TaskSource(caller, task_uuid, watched, seq)
    if watched.is_over and not await read_task_events(watched.task_id, after_seq=seq, max_events=1):
        return HttpResponse(status=204)
    return stream_response(source, user_id=caller.user_id)


class TaskSource:
    """The events of one task behind `seq`, for one reader."""

    def __init__(self, caller: Caller, task_uuid: UUID, watched: Watched, seq: int) -> None:
        self._caller = caller
        self._task_uuid = task_uuid
        self._task_id = watched.task_id
        self._was_over = watched.is_over
        trace = node_trace(watched.middleware)
        self._trace = {} if trace is None else {"middleware": trace}
        self._seq = seq
        self._stack = AsyncExitStack()
        self._hints: Hints | None = None
        self._runners: dict[int, UUID] = {}
        self.is_over = False

    async def poll(self) -> list[Frame]:
        if self._hints is None:
            # Before the first look, so that nothing falls between the two.
            self._hints = await self._stack.enter_async_context(watching(self._task_uuid))
        output = self._hints.take()
        events = await read_task_events(self._task_id, after_seq=self._seq)
        unknown = {event.runner_id for event in events if event.runner_id} - self._runners.keys()
        self._runners |= await uuids_of_runners(unknown)
        frames = [
            *(_output_frame(place, end) for place, end in output.items()),
            *(_event_frame(event, self._runners, self._trace) for event in events),
        ]
        if events:
            self._seq = events[-1].seq or self._seq
        has_ended = self._was_over or any(event.kind is EventKind.ENDED for event in events)
        self.is_over = has_ended and len(events) < MAX_EVENTS
        return frames

    async def permit(self) -> None:
        await self._caller.recheck()
        if await find_watched(self._caller.user_id, self._task_uuid) is None:
            raise absent(self._task_uuid)

    async def wait(self, timeout_s: float) -> None:
        if self._hints is not None:
            await self._hints.wait(timeout_s)

    async def close(self) -> None:
        await self._stack.aclose()


async def group_events(request: HttpRequest, caller: Caller) -> HttpResponse:
    """`GET /events?cursor=`: what happened in the caller's groups behind the cursor."""
    groups = await groups_of_user(caller.user_id)
    cursor = request.GET.get("cursor", "")
    if cursor == "newest":
        return _json({"events": [], "cursor": await newest_cursor(), "is_end": True})
    limit = _limit(request)
    page = await read_group_events(groups.keys(), cursor=cursor, max_events=limit)
    runners = await uuids_of_runners({e.runner_id for e in page.events if e.runner_id})
    tasks = await uuids_of_tasks({e.task_id for e in page.events if e.task_id})
    suites = await uuids_of_suites({e.suite_id for e in page.events if e.suite_id})
    events = [
        {
            **event_body(event, runners),
            "cursor": event.cursor,
            "group_name": groups.get(event.group_id),
            "task_uuid": tasks.get(event.task_id or 0),
            "suite_uuid": suites.get(event.suite_id or 0),
        }
        for event in page.events
    ]
    return _json({"events": events, "cursor": page.cursor, "is_end": page.is_end})


def event_body(event: Event, runners: Mapping[int, UUID]) -> dict[str, Any]:
    """One event as every route shows it."""
    return {
        "seq": event.seq,
        "at": format_rfc3339(event.at),
        "kind": event.kind.value,
        "state": None if event.state is None else event.state.value,
        "outcome": None if event.outcome is None else event.outcome.value,
        "attempt": event.attempt,
        "runner_uuid": runners.get(event.runner_id or 0),
        "data": event.data,
    }


def _event_frame(event: Event, runners: Mapping[int, UUID], trace: Mapping[str, object]) -> Frame:
    name = OUTPUT if _is_delta(event) else STATE
    return Frame(name, _encoder.encode({**event_body(event, runners), **trace}), id=str(event.seq))


def _is_delta(event: Event) -> bool:
    """Fragments of a node's result (tasks.services.direct) are rows with this one member."""
    return (
        event.kind is EventKind.PROGRESS
        and event.data is not None
        and bytes(event.data).startswith(b'{"chunks":')
    )


def _output_frame(place: tuple[int, str], end: int) -> Frame:
    attempt, stream = place
    data = {"attempt": attempt, "stream": stream, "available": end}
    return Frame(OUTPUT, _encoder.encode(data))


def _last_seen(request: HttpRequest) -> int:
    """From the browser's header when it comes back, from the query for the first time."""
    text = request.headers.get("Last-Event-ID") or request.GET.get("last_event_id") or "0"
    if _NUMBER.fullmatch(text) is None or int(text) > _MAX_SEQ:
        raise InvalidInput("Last-Event-ID: this is not the id of one of our events")
    return int(text)


def _limit(request: HttpRequest) -> int:
    text = request.GET.get("limit", str(MAX_EVENTS))
    if _NUMBER.fullmatch(text) is None or not 1 <= int(text) <= MAX_EVENTS:
        raise InvalidInput(f"limit: a number from 1 to {MAX_EVENTS} is needed")
    return int(text)


def _json(body: object) -> HttpResponse:
    response = HttpResponse(_encoder.encode(body), content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    return response
