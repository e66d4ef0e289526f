"""Which answers are awaited on the socket: what each request was for, and until when.

Pure: the caller brings ids and the time. An answer that finds nobody is dropped, so one that comes
after its timeout, or for a socket that is gone, does no harm. Used by nodeagent.shell.
"""

from typing import Generic, TypeVar

from mitosis_protocol.limits import REQUEST_TIMEOUT_S

Purpose = TypeVar("Purpose")


class Pending(Generic[Purpose]):
    """Open requests, oldest first."""

    def __init__(self, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._open: dict[int, tuple[Purpose, float]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, request_id: int, purpose: Purpose, now: float) -> None:
        """An answer is awaited from now on."""
        if request_id in self._open:
            raise ValueError(f"request {request_id} is already open")
        self._open[request_id] = (purpose, now + self._timeout_s)

    def find(self, request_id: int) -> Purpose | None:
        """What an answer is for; more of it may follow."""
        found = self._open.get(request_id)
        return None if found is None else found[0]

    def settle(self, request_id: int) -> Purpose | None:
        """As `find`, for the last answer."""
        found = self._open.pop(request_id, None)
        return None if found is None else found[0]

    def expire(self, now: float) -> list[tuple[int, Purpose]]:
        """Requests whose time is up; they are forgotten."""
        late: list[tuple[int, Purpose]] = []
        # All have the same timeout, so the oldest comes first.
        for request_id, (purpose, deadline) in list(self._open.items()):
            if deadline > now:
                break
            late.append((request_id, purpose))
            del self._open[request_id]
        return late

    def drop_all(self) -> list[Purpose]:
        """The socket is gone: no answer will come."""
        dropped = [purpose for purpose, _ in self._open.values()]
        self._open.clear()
        return dropped
