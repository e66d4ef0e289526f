"""Live output in the object store: any order, any offset, repeated and missing pieces."""

from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest
import redis

from core import clock
from core.errors import InvalidInput, TooLarge
from mitosis_protocol.limits import MAX_LOG_BYTES_PER_ATTEMPT
from tasks.services.logs import (
    MAX_CHUNK_BYTES,
    MAX_READ_BYTES,
    LogStream,
    append_log_chunk,
    discard_old_logs,
    read_log,
)
from tests.integration.tasks.api_world import Caller, TeamWorker, refused, submit

OUT, ERR = LogStream.STDOUT, LogStream.STDERR


@pytest.fixture
def uuid(clean_redis: redis.Redis) -> UUID:
    return uuid4()


def text(uuid: UUID, offset: int = 0, *, over: bool = False, attempt: int = 1) -> tuple[bytes, int]:
    part = read_log(uuid, attempt, OUT, offset=offset, skip_gaps=over)
    return part.data, part.next_offset


async def test_pieces_are_read_in_order_from_any_offset(uuid: UUID) -> None:
    await append_log_chunk(uuid, 1, OUT, 6, b"world")
    await append_log_chunk(uuid, 1, OUT, 0, b"hello ")
    await append_log_chunk(uuid, 1, ERR, 0, b"other stream")
    await append_log_chunk(uuid, 2, OUT, 0, b"other attempt")
    assert text(uuid) == (b"hello world", 11)
    assert text(uuid, 4) == (b"o world", 11)
    assert text(uuid, 11) == (b"", 11)
    assert text(uuid, 99) == (b"", 99)


async def test_repeated_and_overlapping_pieces_are_read_once(uuid: UUID) -> None:
    await append_log_chunk(uuid, 1, OUT, 0, b"hello ")
    await append_log_chunk(uuid, 1, OUT, 0, b"hello ")
    await append_log_chunk(uuid, 1, OUT, 3, b"lo world")
    assert text(uuid) == (b"hello world", 11)


async def test_a_missing_piece_is_waited_for_until_the_attempt_is_over(uuid: UUID) -> None:
    await append_log_chunk(uuid, 1, OUT, 0, b"aaa")
    await append_log_chunk(uuid, 1, OUT, 6, b"ccc")
    assert text(uuid) == (b"aaa", 3)
    assert text(uuid, over=True) == (b"aaaccc", 9)
    await append_log_chunk(uuid, 1, OUT, 3, b"bbb")
    assert text(uuid) == (b"aaabbbccc", 9)


async def test_long_output_comes_in_parts(uuid: UUID) -> None:
    piece = bytes(range(256)) * (MAX_CHUNK_BYTES // 256)
    for n in range(6):
        await append_log_chunk(uuid, 1, OUT, n * len(piece), piece)
    first = read_log(uuid, 1, OUT, offset=0, skip_gaps=False)
    assert (len(first.data), first.has_more) == (MAX_READ_BYTES, True)
    second = read_log(uuid, 1, OUT, offset=first.next_offset, skip_gaps=False)
    assert first.data + second.data == piece * 6
    assert not second.has_more


async def test_pieces_have_limits(uuid: UUID) -> None:
    with pytest.raises(InvalidInput):
        await append_log_chunk(uuid, 1, OUT, -1, b"x")
    with pytest.raises(TooLarge):
        await append_log_chunk(uuid, 1, OUT, 0, b"x" * (MAX_CHUNK_BYTES + 1))
    with pytest.raises(TooLarge):
        await append_log_chunk(uuid, 1, OUT, MAX_LOG_BYTES_PER_ATTEMPT, b"x")
    await append_log_chunk(uuid, 1, OUT, 5, b"")
    assert text(uuid) == (b"", 0)


async def test_old_output_is_swept(uuid: UUID) -> None:
    await append_log_chunk(uuid, 1, OUT, 0, b"hello")
    _sweep(clock.now() - timedelta(hours=1))
    assert text(uuid) == (b"hello", 5)
    _sweep(clock.now() + timedelta(hours=1))
    assert text(uuid) == (b"", 0)


def _sweep(before: datetime) -> None:
    place = discard_old_logs(before=before)
    while place:
        place = discard_old_logs(before=before, after_key=place)


@pytest.mark.django_db
@pytest.mark.usefixtures("services")
def test_logs_of_a_task_without_output_are_empty(ada: Caller, worker: TeamWorker) -> None:
    made = submit(ada)
    waiting = ada.call("GET", f"/tasks/{made}/logs?stream=stdout")
    assert (waiting.status_code, waiting.content) == (200, b"")
    assert waiting.headers["X-Log-Complete"] == "false"
    worker.run()
    ended = ada.call("GET", f"/tasks/{made}/logs?stream=stderr")
    assert ended.headers["X-Log-Complete"] == "true"
    plain = ada.call("GET", f"/tasks/{made}/logs?stream=stdout", accept="text/plain")
    assert plain.status_code == 200


@pytest.mark.django_db
@pytest.mark.usefixtures("services")
@pytest.mark.parametrize(
    "query",
    [
        *("", "stream=stdin", "stream=stdout&offset=-1", "stream=stdout&offset=x"),
        *("stream=stdout&offset=99999999999999", "stream=stdout&attempt=x", "stream=%00"),
        "stream=stdout&offset=%D9%A1",
    ],
)
def test_bad_questions_about_logs_are_refused(ada: Caller, query: str) -> None:
    refused(ada.call("GET", f"/tasks/{submit(ada)}/logs?{query}"), 400)


async def test_output_that_is_no_text_is_kept_as_it_is(uuid: UUID) -> None:
    await append_log_chunk(uuid, 3, OUT, 0, b"\xff\x00 not text \x1b[31m")
    assert text(uuid, attempt=3) == (b"\xff\x00 not text \x1b[31m", 17)
