"""Live output of running commands: chunks in S3, so that they outlive the node.

Runners append through the workers API and the WebSockets, people read through the tasks API. A
chunk is an object named by its offset: writing it again is harmless, and reading from any offset
needs one listing. Chunks are removed by a sweep some days later; the std-log archive remains.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.errors import InvalidInput, TooLarge
from mitosis_protocol.limits import KIB, MAX_LOG_BYTES_PER_ATTEMPT, MIB
from tasks.live import announce_output
from tasks.storage import LOGS_PREFIX, Bucket, ObjectInfo, get_storage, log_prefix

MAX_CHUNK_BYTES: Final = 256 * KIB  # as much as fits a frame
MAX_READ_BYTES: Final = 1 * MIB
MAX_READ_CHUNKS: Final = 64  # objects fetched for one answer, about 2 ms each
_OFFSET_DIGITS: Final = 12  # 1 GiB has 10; fixed, so that keys sort by offset


class LogStream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True)
class LogPart:
    """Some output, where it goes on, and whether more was stored already."""

    data: bytes
    next_offset: int
    has_more: bool


@dataclass(frozen=True, slots=True)
class _Chunk:
    key: str
    start: int
    end: int


async def append_log_chunk(
    task_uuid: UUID, attempt: int, stream: LogStream, offset: int, data: bytes
) -> None:
    """Store output that begins at `offset` and tell who is watching.

    The caller has proven that its runner holds the attempt. Raises InvalidInput, TooLarge,
    StorageUnavailable; may be repeated.
    """
    if offset < 0:
        raise InvalidInput("offset: it must not be negative")
    if len(data) > MAX_CHUNK_BYTES:
        raise TooLarge(f"A piece of output may have at most {MAX_CHUNK_BYTES} bytes")
    if offset + len(data) > MAX_LOG_BYTES_PER_ATTEMPT:
        raise TooLarge(f"An attempt may write at most {MAX_LOG_BYTES_PER_ATTEMPT} bytes of output")
    if not data:
        return
    key = f"{log_prefix(task_uuid, attempt, stream)}{offset:0{_OFFSET_DIGITS}d}"
    await asyncio.to_thread(get_storage().put, Bucket.ARTIFACTS, key, data)
    await announce_output(task_uuid, attempt, stream.value, offset + len(data))


def read_log(
    task_uuid: UUID, attempt: int, stream: LogStream, *, offset: int, skip_gaps: bool
) -> LogPart:
    """Output from `offset` on, up to a missing chunk or MAX_READ_BYTES.

    `skip_gaps` jumps over what never arrived; for attempts that are over.
    """
    chunks = _chunks(log_prefix(task_uuid, attempt, stream), offset)
    chosen, position, has_more = _choose(chunks, offset, skip_gaps=skip_gaps)
    parts: list[bytes] = []
    read_to = offset
    for chunk in chosen:
        content = get_storage().get(Bucket.ARTIFACTS, chunk.key) or b""
        # A repeated report may be cut elsewhere than the first one, so chunks may overlap.
        parts.append(content[max(0, read_to - chunk.start) :])
        read_to = chunk.end
    return LogPart(b"".join(parts), position, has_more)


def discard_old_logs(*, before: datetime, after_key: str = "") -> str:
    """One step of a sweep: remove chunks last written before `before`.

    Answers the key to continue behind, "" at the end.
    """
    storage = get_storage()
    page = storage.list_objects(Bucket.ARTIFACTS, LOGS_PREFIX, after=after_key)
    old = [item.key for item in page if item.modified_at < before]
    if old:
        storage.delete(Bucket.ARTIFACTS, old)
    return page[-1].key if page else ""


def _chunks(prefix: str, offset: int) -> list[_Chunk]:
    # The chunk that holds `offset` begins at most one chunk's length before it.
    earliest = max(0, offset - MAX_CHUNK_BYTES)
    after = f"{prefix}{earliest - 1:0{_OFFSET_DIGITS}d}" if earliest else ""
    page = get_storage().list_objects(Bucket.ARTIFACTS, prefix, after=after)
    return [_chunk(prefix, item) for item in page]


def _chunk(prefix: str, item: ObjectInfo) -> _Chunk:
    start = int(item.key.removeprefix(prefix))
    return _Chunk(item.key, start, start + item.size)


def _choose(
    chunks: Sequence[_Chunk], offset: int, *, skip_gaps: bool
) -> tuple[list[_Chunk], int, bool]:
    """Which chunks to fetch, the offset behind them, and whether stored ones are left."""
    chosen: list[_Chunk] = []
    position = offset
    for chunk in chunks:
        if chunk.end <= position:
            continue
        if chunk.start > position and not skip_gaps:
            return chosen, position, False
        is_full = chosen and chunk.end - offset > MAX_READ_BYTES
        if is_full or len(chosen) == MAX_READ_CHUNKS:
            return chosen, position, True
        chosen.append(chunk)
        position = chunk.end
    return chosen, position, False
