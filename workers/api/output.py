"""Live output: `POST /workers/tasks/{uuid}/logs?stream=&offset=`, best effort by contract.

The bytes are filed under the attempt in hand, so a worker that lost its task writes nowhere. A
commit waits for what is being written (`written`): a reader who is told that a log is complete
must not find more of it afterwards.
"""

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any, Final

import structlog
from django.http import HttpRequest, HttpResponse

from accounts.identity import Identity
from core.errors import InvalidInput
from core.pg import get_pool, load_sql
from tasks.selectors import absent
from tasks.services.logs import LogStream, append_log_chunk
from workers.api.bodies import read_uuid
from workers.api.endpoint import answer, takes_direct

log = structlog.get_logger(__name__)

_ATTEMPT: Final = load_sql("workers", "attempt_in_hand")
_MAX_DIGITS: Final = 18
# Longer than any put that succeeds: a store that hangs does not hold a result back for ever.
_PATIENCE_S: Final = 15.0
# By runner, pieces that this process is writing.
_WRITING: Final[defaultdict[int, set[asyncio.Task[None]]]] = defaultdict(set)


@takes_direct
async def append(request: HttpRequest, identity: Identity, task_uuid: str) -> HttpResponse:
    """Store a piece; may be repeated with the same offset."""
    uuid = read_uuid(task_uuid)
    stream, offset = _stream(request.GET.get("stream", "")), _offset(request.GET.get("offset", ""))
    rows = await get_pool().fetch(_ATTEMPT, {"uuid": uuid, "runner_id": identity.id})
    if not rows:
        raise absent(uuid)
    await _write(identity.id, append_log_chunk(uuid, rows[0][0], stream, offset, request.body))
    return answer(None)


async def written(runner_id: int) -> None:
    """Until the output that came before is stored, also of requests whose caller hung up."""
    here = asyncio.get_running_loop()
    writing = {task for task in _WRITING.get(runner_id, ()) if task.get_loop() is here}
    if writing:
        await asyncio.wait(writing, timeout=_PATIENCE_S)


async def _write(runner_id: int, put: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(put)
    _WRITING[runner_id].add(task)
    task.add_done_callback(lambda done: _forget(runner_id, done))
    # The thread that puts cannot be stopped: a caller that hangs up ends the request, not the put.
    await asyncio.shield(task)


def _forget(runner_id: int, done: asyncio.Task[None]) -> None:
    _WRITING[runner_id].discard(done)
    if not _WRITING[runner_id]:
        del _WRITING[runner_id]
    if not done.cancelled() and (error := done.exception()) is not None:
        log.info("output.not_kept", runner_id=runner_id, reason=str(error))


def _stream(text: str) -> LogStream:
    try:
        return LogStream(text)
    except ValueError as error:
        raise InvalidInput("stream: it has to be stdout or stderr") from error


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_DIGITS:
        raise InvalidInput("offset: it has to be a number of bytes")
    return int(text)
