"""The story of one task as spans: waiting, attempts, running, uploading. Pure.

The trace's id is the task's uuid and every span's id follows from it, so a story that is sent
twice is the same trace, and whoever has a task can find its trace.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from mitosis_protocol.enums import Outcome
from tasks.enums import EventKind

_INTERNAL: Final = 1  # OTLP's kind of a span without a remote side
_OK, _ERROR = 1, 2
_BEGINS_WAIT: Final = frozenset({EventKind.SUBMITTED, EventKind.RELEASED, EventKind.REQUEUED})
_ENDS_ATTEMPT: Final = frozenset({EventKind.REQUEUED, EventKind.ENDED})


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a task."""

    kind: EventKind
    at: datetime
    attempt: int | None
    runner: UUID | None


@dataclass(frozen=True, slots=True)
class Story:
    """A task that ended, and its events in order."""

    uuid: UUID
    group: str
    suite: UUID | None
    outcome: Outcome
    steps: list[Step] = field(default_factory=list)


def spans_of(story: Story) -> list[dict[str, Any]]:
    """OTLP's JSON of every span; the first is the task itself, from submit to commit."""
    if not story.steps:
        return []
    root = _id(story, "task")
    facts: dict[str, object] = {
        "mitosis.task": str(story.uuid),
        "mitosis.group": story.group,
        "mitosis.outcome": story.outcome.value,
    }
    if story.suite is not None:
        facts["mitosis.suite"] = str(story.suite)
    whole = _span(story, "task", None, (story.steps[0], story.steps[-1]), facts)
    whole["status"] = {"code": _OK if story.outcome is Outcome.SUCCEEDED else _ERROR}
    return [whole, *_waits(story, root), *_attempts(story, root)]


def _waits(story: Story, root: str) -> list[dict[str, Any]]:
    """From each moment it could be claimed to the claim, or to its end."""
    found: list[dict[str, Any]] = []
    begin: Step | None = None
    for step in story.steps:
        if step.kind in {EventKind.CLAIMED, EventKind.ADOPTED, EventKind.ENDED} and begin:
            found.append(_span(story, f"wait {len(found) + 1}", root, (begin, step), {}))
            begin = None
        elif step.kind in _BEGINS_WAIT:
            begin = begin or step
    return found


def _attempts(story: Story, root: str) -> list[dict[str, Any]]:
    """Each claim to its end, with what the runner did inside it."""
    found: list[dict[str, Any]] = []
    held: list[Step] = []
    for step in story.steps:
        if step.kind in {EventKind.CLAIMED, EventKind.ADOPTED}:
            held = [step]
        elif held:
            held.append(step)
            if step.kind in _ENDS_ATTEMPT:
                found += _attempt(story, root, held, number=len(found))
                held = []
    return found


def _attempt(story: Story, root: str, held: Sequence[Step], number: int) -> list[dict[str, Any]]:
    first, last = held[0], held[-1]
    name = f"attempt {first.attempt}"
    key = f"{name}/{number}"
    facts: dict[str, object] = {
        "mitosis.attempt": first.attempt,
        "mitosis.runner": str(first.runner or ""),
    }
    span = _span(story, name, root, (first, last), facts, key=key)
    starts = [step for step in held if step.kind is EventKind.STARTED]
    uploads = [step for step in held if step.kind is EventKind.FINISHING]
    inner = []
    if starts:
        stopped = uploads[0] if uploads else last
        inner.append(
            _span(story, "run", span["spanId"], (starts[0], stopped), {}, key=f"run/{key}")
        )
    if uploads:
        inner.append(
            _span(story, "commit", span["spanId"], (uploads[0], last), {}, key=f"commit/{key}")
        )
    return [span, *inner]


def _span(
    story: Story,
    name: str,
    parent: str | None,
    between: tuple[Step, Step],
    facts: dict[str, object],
    *,
    key: str | None = None,
) -> dict[str, Any]:
    begin, end = between
    return {
        "traceId": story.uuid.hex,
        "spanId": _id(story, key or name),
        "parentSpanId": parent or "",
        "name": name,
        "kind": _INTERNAL,
        "startTimeUnixNano": _nanoseconds(begin.at),
        "endTimeUnixNano": _nanoseconds(max(begin.at, end.at)),
        "attributes": [_attribute(name, value) for name, value in facts.items()],
        "status": {},
    }


def _attribute(key: str, value: object) -> dict[str, Any]:
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    return {"key": key, "value": {"stringValue": str(value)}}


def _id(story: Story, key: str) -> str:
    return hashlib.sha256(story.uuid.bytes + key.encode()).hexdigest()[:16]


def _nanoseconds(at: datetime) -> str:
    """As text: JSON's numbers lose the last digits."""
    microseconds = int(at.timestamp()) * 1_000_000 + at.microsecond
    return str(microseconds * 1000)
