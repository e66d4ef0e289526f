"""Why a worker takes nothing new: an order, a full host, or its departure. Pure; part of machine.

Reasons stand beside each other: relief from one does not lift another.
"""

from typing import Final

from mitosis_protocol.control_payloads import (
    DRAIN_DISK_PCT,
    DRAIN_MEM_PCT,
    Drain,
    SessionTerms,
)
from nodeagent.direct.events import Measured

# Below the limit by this much before work is taken again, or a full host would flap.
RELIEF_PCT: Final = 5.0

_PRESSURE: Final = "pressure"
_ORDERED: Final = "ordered"
_FINAL: Final = "final"
_LEAVING: Final = "leaving"


class Drains:
    """The reasons in force."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._mem_pct = DRAIN_MEM_PCT
        self._disk_pct = DRAIN_DISK_PCT

    def __bool__(self) -> bool:
        return bool(self._reasons)

    @property
    def texts(self) -> list[str]:
        return list(self._reasons.values())

    @property
    def is_pressed(self) -> bool:
        return _PRESSURE in self._reasons

    @property
    def is_final(self) -> bool:
        """The coordinator wants us gone once our hands are empty."""
        return _FINAL in self._reasons

    def agree(self, terms: SessionTerms) -> None:
        """The scheduler's limits for this worker's tenant; the next look at the host uses them."""
        self._mem_pct, self._disk_pct = terms.drain_mem_pct, terms.drain_disk_pct

    def order(self, drain: Drain) -> None:
        """What the coordinator said; a final word is not taken back."""
        if drain.is_lifted:
            self._reasons.pop(_ORDERED, None)
        else:
            self._reasons[_FINAL if drain.is_final else _ORDERED] = drain.reason or "ordered"

    def leave(self) -> None:
        self._reasons[_LEAVING] = "leaving"

    def measure(self, load: Measured) -> bool:
        """Whether the look at the host changed something."""
        relief = RELIEF_PCT if self.is_pressed else 0.0
        is_full = load.mem_pct >= self._mem_pct - relief or load.disk_pct >= self._disk_pct - relief
        if is_full == self.is_pressed:
            return False
        if is_full:
            text = f"memory {load.mem_pct:.0f} %, disk {load.disk_pct:.0f} %"
            self._reasons[_PRESSURE] = text
        else:
            del self._reasons[_PRESSURE]
        return True
