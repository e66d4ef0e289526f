"""While `run --wait` waits and nothing ends: why, if the coordinator knows a reason.

A preparation that failed or a tag that no host has would otherwise be a bar that never moves.
"""

import time
from collections.abc import Callable
from typing import Final

from mitosis_client.client import Client
from mitosis_client.errors import MitosisError

QUIET_S: Final = 5.0  # a host that is only being prepared is not worth a word
AGAIN_S: Final = 30.0


class Hints:
    """Asks now and then; tells what is new."""

    def __init__(self, client: Client, suite: str, note: Callable[[str], None]) -> None:
        self._client = client
        self._suite = suite
        self._note = note
        self._next = time.monotonic() + QUIET_S
        self._told = ""

    def heard(self) -> None:
        """A task has ended: it moves."""
        self._next = time.monotonic() + QUIET_S

    def look(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + AGAIN_S
        try:
            found = self._client.suites.explain(self._suite)
        except MitosisError:
            return  # whoever waits for the tasks tells of that
        if not found.can_run and found.summary != self._told:
            self._told = found.summary
            change = "; ".join(found.smallest_change)
            self._note(f"waiting: {found.summary}" + (f" ({change})" if change else ""))
