"""Waiting through a coordinator's absence: a deploy or a reboot must not end a night's wait.

The tasks do not need the coordinator to run, so whoever waits for them only waits longer.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from mitosis_client.errors import CoordinatorUnreachable, MitosisError, ServerError

T = TypeVar("T")

MAX_OUTAGE_S: Final = 15 * 60.0
PAUSE_S: Final = 0.5
_PASSING: Final = frozenset({502, 503, 504})  # a proxy before it, or it without its database


class Outage:
    """How long nobody has answered, and whether that is still to be borne."""

    def __init__(
        self, tell: Callable[[str], None] = lambda text: None, *, limit_s: float = MAX_OUTAGE_S
    ) -> None:
        self._tell = tell
        self._limit_s = limit_s
        self._began: float | None = None

    def bear(self, error: MitosisError) -> None:
        """Raises the error if it does not pass by itself, or has not for too long."""
        if not _passes(error):
            raise error
        now = time.monotonic()
        if self._began is None:
            self._began = now
            self._tell(f"{error}; still waiting, the tasks go on meanwhile")
        elif now - self._began > self._limit_s:
            raise error

    def over(self) -> None:
        """Somebody answered."""
        if self._began is not None:
            self._tell(f"the coordinator is back after {time.monotonic() - self._began:.0f} s")
        self._began = None


def patiently(read: Callable[[], T]) -> T:
    """What `read` gives, once the coordinator is there to be asked."""
    outage = Outage()
    while True:
        try:
            return read()
        except MitosisError as error:
            outage.bear(error)
        time.sleep(PAUSE_S)


def _passes(error: MitosisError) -> bool:
    if isinstance(error, ServerError):
        return error.status in _PASSING
    return isinstance(error, CoordinatorUnreachable)
