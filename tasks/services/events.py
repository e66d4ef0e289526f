"""Read the event log by cursor: of a task, of a suite, of everything a reader may see.

Events are written by the statements that cause them, never here. A task's cursor is its `seq`; the
others' is (xid, id) and ends before the oldest running transaction, so a reader that follows it
never skips an event, however late its transaction commits. A long transaction delays readers.
"""

import re
from collections.abc import Collection
from datetime import datetime
from typing import Final

import msgspec

from core.errors import InvalidInput
from mitosis_protocol.enums import Outcome, TaskPhase
from tasks import store
from tasks.enums import EventKind
from tasks.rows import EventRow
from tasks.statements import Params, array

MAX_EVENTS: Final = 500
_CURSOR: Final = re.compile(r"(\d{1,19})-(\d{1,19})")


class Event(msgspec.Struct, frozen=True):
    """One thing that happened. `seq` counts from 1 within its task."""

    cursor: str
    at: datetime
    kind: EventKind
    group_id: int
    suite_id: int | None
    task_id: int | None
    seq: int | None
    attempt: int | None
    runner_id: int | None
    state: TaskPhase | None
    outcome: Outcome | None
    data: msgspec.Raw | None


class Page(msgspec.Struct, frozen=True):
    """Events in order and where to go on; `cursor` moves even when nothing was visible."""

    events: list[Event]
    cursor: str
    is_end: bool  # no more for now


async def read_task_events(
    task_id: int, *, after_seq: int, max_events: int = MAX_EVENTS
) -> list[Event]:
    """Events of one task after `seq`; 0 starts at its submission."""
    rows = await store.EVENTS_OF_TASK.fetch(_task_params(task_id, after_seq, max_events))
    return [_event(row) for row in rows]


async def read_suite_events(suite_id: int, *, cursor: str, max_events: int = MAX_EVENTS) -> Page:
    """Events of one suite; the cursor "" starts at its first. Raises InvalidInput."""
    params = {**await _position(cursor), "suite_id": suite_id, "max_events": max_events}
    return _page(await store.EVENTS_OF_SUITE.fetch(params), cursor, max_events)


async def read_group_events(
    group_ids: Collection[int], *, cursor: str, max_events: int = MAX_EVENTS
) -> Page:
    """Events of all tasks in these groups; `max_events` bounds what is looked at, not found."""
    params = {
        **await _position(cursor),
        "group_ids": array(group_ids),
        "max_events": max_events,
    }
    rows = await store.EVENTS_WINDOW.fetch(params)
    visible = [row for row in rows if row.group_id is not None]
    return Page(
        [_event(row) for row in visible],
        _cursor(rows[-1]) if rows else cursor,
        is_end=not rows,
    )


async def newest_cursor() -> str:
    """The cursor of a reader that only wants what happens from now on."""
    [horizon] = await store.EVENT_HORIZON.fetch({})
    return f"{horizon.safe_xid}-0"


async def _position(cursor: str) -> Params:
    if not cursor:
        return {"xid": "0", "id": 0}
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise InvalidInput("this is not an event cursor")
    [horizon] = await store.EVENT_HORIZON.fetch({})
    if int(found[1]) > int(horizon.next_xid):
        # From a database that lived before a restore: following it would wait for ever.
        raise InvalidInput("this event cursor is not from this server; start again without one")
    return {"xid": found[1], "id": int(found[2])}


def _task_params(task_id: int, after_seq: int, max_events: int) -> Params:
    return {"task_id": task_id, "after_seq": after_seq, "max_events": max_events}


def _page(rows: list[EventRow], cursor: str, max_events: int) -> Page:
    return Page(
        [_event(row) for row in rows],
        _cursor(rows[-1]) if rows else cursor,
        is_end=len(rows) < max_events,
    )


def _event(row: EventRow) -> Event:
    return Event(
        cursor=_cursor(row),
        at=row.at,
        kind=EventKind.from_code(row.kind),
        group_id=row.group_id or 0,
        suite_id=row.suite_id,
        task_id=row.task_id,
        seq=row.seq,
        attempt=row.attempt,
        runner_id=row.runner_id,
        state=None if row.state is None else TaskPhase.from_code(row.state),
        outcome=None if row.outcome is None else Outcome.from_code(row.outcome),
        data=None if row.data is None else msgspec.Raw(row.data.encode()),
    )


def _cursor(row: EventRow) -> str:
    return f"{row.xid}-{row.id}"
