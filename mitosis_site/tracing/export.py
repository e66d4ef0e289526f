"""Sends one trace per ended task to an OpenTelemetry collector (OTLP over HTTP, JSON).

Read from the event log by its cursor, which moves on only after the collector took the spans: at
least once, nothing on the path of a task, and no library. Called by mitosis_site.periodic.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

import httpx2
import structlog
from django.conf import settings
from django.db import connection

from core.pg import load_sql
from mitosis_protocol.enums import Outcome
from mitosis_site.tracing.spans import Step, Story, spans_of
from notifications.services.positions import position_of
from notifications.services.turns import turn
from tasks.enums import EventKind

log = structlog.get_logger(__name__)

_ENDED: Final = load_sql("mitosis_site", "traces/ended")
_STORIES: Final = load_sql("mitosis_site", "traces/stories")
_ADVANCE: Final = load_sql("mitosis_site", "traces/advance")
READER: Final = "traces"  # also in traces/advance.sql
MAX_EVENTS: Final = 2000  # of one stretch; some hundred tasks, a few hundred kilobytes
BUDGET_S: Final = 10.0
ANSWER_S: Final = 10.0
TURN_S: Final = 60.0


def export_traces(*, endpoint: str, headers: dict[str, str], budget_s: float = BUDGET_S) -> int:
    """Send what ended since the last run; answers how many traces the collector took."""
    with (
        turn(READER, limit_s=TURN_S) as is_ours,
        httpx2.Client(timeout=ANSWER_S, headers=headers, follow_redirects=False) as client,
    ):
        return _send_stretches(client, endpoint, budget_s) if is_ours else 0


def _send_stretches(client: httpx2.Client, endpoint: str, budget_s: float) -> int:
    ends_at, sent = time.monotonic() + budget_s, 0
    while time.monotonic() < ends_at:
        old = position_of(READER)
        found = _next_stretch(old)
        if found is None:
            break
        place, task_ids = found
        stories = _stories(task_ids)
        if stories and not _send(client, endpoint, stories):
            break
        _advance(old, place)
        sent += len(stories)
    return sent


def _next_stretch(after: tuple[str, int]) -> tuple[tuple[str, int], list[int]] | None:
    with connection.cursor() as cursor:
        cursor.execute(_ENDED, {"xid": after[0], "id": after[1], "max_events": MAX_EVENTS})
        row = cursor.fetchone()
    return None if row is None else ((row[0], row[1]), row[2])


def _stories(task_ids: Sequence[int]) -> list[Story]:
    if not task_ids:
        return []
    found: dict[object, Story] = {}
    with connection.cursor() as cursor:
        cursor.execute(_STORIES, {"task_ids": list(task_ids)})
        for uuid, group, suite, outcome, kind, at, attempt, runner in cursor.fetchall():
            story = found.get(uuid)
            if story is None:
                story = Story(uuid, group, suite, Outcome.from_code(outcome))
                found[uuid] = story
            story.steps.append(Step(EventKind.from_code(kind), at, attempt, runner))
    return list(found.values())


def _send(client: httpx2.Client, endpoint: str, stories: Sequence[Story]) -> bool:
    try:
        answer = client.post(f"{endpoint}/v1/traces", json=_request(stories))
    except httpx2.TransportError as error:
        log.warning("traces.not_sent", count=len(stories), reason=type(error).__name__)
        return False
    if not answer.is_success:
        log.warning("traces.not_sent", count=len(stories), status=answer.status_code)
    return bool(answer.is_success)


def _request(stories: Sequence[Story]) -> dict[str, Any]:
    service = {"key": "service.name", "value": {"stringValue": "mitosis"}}
    spans = [span for story in stories for span in spans_of(story)]
    scope = {"scope": {"name": "mitosis.tasks"}, "spans": spans}
    resource = {"attributes": [service]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _advance(old: tuple[str, int], new: tuple[str, int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_ADVANCE, {"xid": new[0], "id": new[1], "old_xid": old[0], "old_id": old[1]})


def configured() -> tuple[str, dict[str, str]] | None:
    """Where to send to, or None: traces are off."""
    if not settings.OTLP_ENDPOINT:
        return None
    return settings.OTLP_ENDPOINT, dict(settings.OTLP_HEADERS)
