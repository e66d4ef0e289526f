"""News of running attempts from managers: stages and feedback to the event log, output to S3.

Called by the manager socket. Best effort: an attempt that is not the manager's is answered as
stale, trouble with the store as `retry_later`; nothing else is affected.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from core.errors import DomainError, StorageUnavailable
from mitosis_protocol.enums import ReportAnswer
from mitosis_protocol.manager_reports import TaskEvent
from mitosis_protocol.to_manager import ReportResult
from tasks.dispatcher import Progress
from tasks.services.logs import LogStream, append_log_chunk
from tasks.services.manager_attempts import HeldAttempt, find_held
from tasks.services.report import report_progress

# Of one frame: a manager with much to tell leaves connections to the store for others.
MAX_CHUNKS_AT_ONCE: Final = 8
_encoder: Final = msgspec.json.Encoder()


async def accept_events(runner_id: int, events: Sequence[TaskEvent]) -> list[ReportResult]:
    """One result per event, in order."""
    answers = dict.fromkeys(range(len(events)), ReportAnswer.OK)
    for step in _in_order([(at, event) for at, event in enumerate(events) if _data(event)]):
        lines = [
            Progress(event.task_id, runner_id, _encoder.encode(_data(event)).decode())
            for _, event in step
        ]
        answers |= zip((at for at, _ in step), await report_progress(lines), strict=True)
    chunks = [(at, event) for at, event in enumerate(events) if event.log is not None]
    if chunks:
        told = await _append_all(runner_id, [event for _, event in chunks])
        answers |= zip((at for at, _ in chunks), told, strict=True)
    return [
        ReportResult(task_id=event.task_id, answer=answers[at]) for at, event in enumerate(events)
    ]


def _in_order(notes: Sequence[tuple[int, TaskEvent]]) -> list[list[tuple[int, TaskEvent]]]:
    """Steps that hold at most one line of each attempt: its event log keeps their order."""
    steps: list[list[tuple[int, TaskEvent]]] = []
    seen: Counter[int] = Counter()
    for at, event in notes:
        if seen[event.task_id] == len(steps):
            steps.append([])
        steps[seen[event.task_id]].append((at, event))
        seen[event.task_id] += 1
    return steps


def _data(event: TaskEvent) -> dict[str, object]:
    data: dict[str, object] = {} if event.progress is None else dict(event.progress)
    if event.exec_state is not None:
        data["exec_state"] = event.exec_state.value
    return data


async def _append_all(runner_id: int, events: Sequence[TaskEvent]) -> list[ReportAnswer]:
    """Several at once: the results of the same tasks wait for them."""
    held = await find_held(runner_id, {event.task_id for event in events})
    room = asyncio.Semaphore(MAX_CHUNKS_AT_ONCE)

    async def append(event: TaskEvent) -> ReportAnswer:
        async with room:
            return await _append(held.get(event.task_id), event)

    return await asyncio.gather(*map(append, events))


async def _append(held: HeldAttempt | None, event: TaskEvent) -> ReportAnswer:
    chunk = event.log
    if held is None or chunk is None:
        return ReportAnswer.STALE_ATTEMPT
    try:
        await append_log_chunk(
            held.task_uuid, held.attempt, LogStream(chunk.stream), chunk.offset, chunk.data
        )
    except StorageUnavailable:
        return ReportAnswer.RETRY_LATER
    except DomainError:
        return ReportAnswer.INVALID
    return ReportAnswer.OK
