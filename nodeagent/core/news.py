"""News of running attempts for the coordinator: gathered, bounded, best effort.

Filled by nodeagent.core.asks, sent with the ticks or when a frame is full. Without a link news are
dropped: the whole output is in the artifacts.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from mitosis_protocol.from_manager import TaskEvents
from mitosis_protocol.limits import MAX_REPORTS_PER_FRAME
from mitosis_protocol.manager_reports import LogChunk, TaskEvent
from nodeagent.core.model import Model
from nodeagent.effects import SendFrame

_CHUNK_BYTES: Final = 96 * 1024  # 128 KiB in base64: half of a frame
_EVENT_BYTES: Final = 256
_FACT_BYTES: Final = 128


def take(m: Model, events: Iterable[TaskEvent]) -> None:
    if not m.session.is_welcome:
        return
    for event in events:
        for part in _parts(event):
            size = _size(part)
            if m.news_bytes + size > _CHUNK_BYTES or len(m.news) >= MAX_REPORTS_PER_FRAME:
                send(m)
            m.news.append(part)
            m.news_bytes += size


def send(m: Model) -> None:
    if m.news and m.session.is_welcome:
        m.out.append(SendFrame(TaskEvents(events=m.news)))
    m.news = []
    m.news_bytes = 0


def _parts(event: TaskEvent) -> Iterator[TaskEvent]:
    log = event.log
    if log is None or len(log.data) <= _CHUNK_BYTES:
        yield event
        return
    for start in range(0, len(log.data), _CHUNK_BYTES):
        data = log.data[start : start + _CHUNK_BYTES]
        chunk = LogChunk(log.stream, log.offset + start, data)
        yield TaskEvent(
            task_id=event.task_id,
            exec_state=event.exec_state if start == 0 else None,
            progress=event.progress if start == 0 else None,
            log=chunk,
        )


def _size(event: TaskEvent) -> int:
    size = _EVENT_BYTES + _FACT_BYTES * len(event.progress or ())
    return size + (0 if event.log is None else len(event.log.data))
