"""Output of tasks: one part from an offset on, and where the next one begins."""

import httpx2
import msgspec

from mitosis_client.calls import tasks
from mitosis_client.calls.call import Call
from mitosis_client.transport import refusal


class LogPart(msgspec.Struct, frozen=True):
    """Bytes of one stream; `is_complete` when nothing will follow."""

    data: bytes
    next_offset: int
    is_complete: bool


def log_request(uuid: str, stream: str, offset: int) -> Call[str]:
    return Call("GET", tasks.log_path(uuid), str, params={"stream": stream, "offset": offset})


def log_part(response: httpx2.Response) -> LogPart:
    """Raises ApiError."""
    if response.status_code >= 300:
        raise refusal(response)
    next_offset = int(response.headers.get("X-Next-Offset", "0"))
    return LogPart(response.content, next_offset, response.headers.get("X-Log-Complete") == "true")
