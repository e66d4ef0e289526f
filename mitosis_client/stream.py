"""Server-sent events: one stream that goes on where it broke off.

`Resumption` keeps the last id and the pause; the loops of the two clients do the reading.
"""

from collections.abc import Mapping
from typing import Any, Final

import httpx2
import msgspec

from mitosis_client.errors import UnexpectedAnswer
from mitosis_client.transport import Patience, refusal

# The coordinator says something every 15 s; three of these missing is a dead connection.
READ_TIMEOUT_S: Final = 50.0
FIRST_PAUSE_S: Final = 0.5
NO_CONTENT: Final = 204


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """`node.state`, `node.result.delta` or `suite.state`, with its data decoded."""

    event: str
    data: Any
    id: str = ""


class Resumption:
    """Where a reader is in a stream."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self.pause_s = FIRST_PAUSE_S
        self._patience = Patience(is_repeatable=True)

    @property
    def headers(self) -> Mapping[str, str]:
        found = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        return {**found, "Last-Event-ID": self.last_id} if self.last_id else found

    def is_over(self, response: httpx2.Response) -> bool:
        """204: everything was read. Raises ApiError when the coordinator refuses."""
        return response.status_code == NO_CONTENT

    def check(self, response: httpx2.Response) -> None:
        if response.status_code != httpx2.codes.OK:
            raise refusal(response)

    def take(self, found: httpx2.ServerSentEvent) -> StreamEvent | None:
        """The event, remembered; None for a frame that only carries `retry`."""
        if found.retry is not None:
            self.pause_s = found.retry / 1000
        if not found.data:
            return None
        try:
            data = msgspec.json.decode(found.data)
        except msgspec.DecodeError as error:
            raise UnexpectedAnswer(f"an event without JSON: {found.event}") from error
        if found.id:
            self.last_id = found.id
        self._patience = Patience(is_repeatable=True)
        return StreamEvent(event=found.event, data=data, id=found.id)

    def pause_after(self, error: httpx2.TransportError) -> float | None:
        """Before coming back; None after too many failures in a row."""
        pause_s = self._patience.after_error(error)
        return None if pause_s is None else max(pause_s, self.pause_s)
