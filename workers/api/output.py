"""Live output: `POST /workers/tasks/{uuid}/logs?stream=&offset=`, best effort by contract.

The bytes are filed under the attempt in hand, so a worker that lost its task writes nowhere.
"""

from typing import Final

from django.http import HttpRequest, HttpResponse

from accounts.identity import Identity
from core.errors import InvalidInput
from core.pg import get_pool, load_sql
from tasks.selectors import absent
from tasks.services.logs import LogStream, append_log_chunk
from workers.api.bodies import read_uuid
from workers.api.endpoint import answer, takes_direct

_ATTEMPT: Final = load_sql("workers", "attempt_in_hand")
_MAX_DIGITS: Final = 18


@takes_direct
async def append(request: HttpRequest, identity: Identity, task_uuid: str) -> HttpResponse:
    """Store a piece; may be repeated with the same offset."""
    uuid = read_uuid(task_uuid)
    stream, offset = _stream(request.GET.get("stream", "")), _offset(request.GET.get("offset", ""))
    rows = await get_pool().fetch(_ATTEMPT, {"uuid": uuid, "runner_id": identity.id})
    if not rows:
        raise absent(uuid)
    await append_log_chunk(uuid, rows[0][0], stream, offset, request.body)
    return answer(None)


def _stream(text: str) -> LogStream:
    try:
        return LogStream(text)
    except ValueError as error:
        raise InvalidInput("stream: it has to be stdout or stderr") from error


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_DIGITS:
        raise InvalidInput("offset: it has to be a number of bytes")
    return int(text)
