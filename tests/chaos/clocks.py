"""Wall clocks that are wrong and step while a process runs, without touching the machine's own.

A process follows the file named in its environment (`skewed/sitecustomize.py`). What the agents of
a host start is not reached: their environment is empty on purpose, and they ask for no wall clock.
"""

import os
import struct
from pathlib import Path
from typing import Final

SKEWED: Final = Path(__file__).parent / "skewed"
_SECONDS: Final = struct.Struct("=d")


class Clock:
    """One clock for as many processes as are given its environment; right at first."""

    def __init__(self, file: Path) -> None:
        self.ahead_s = 0.0
        self._file = file
        file.write_bytes(_SECONDS.pack(0.0))

    def step_to(self, ahead_s: float) -> None:
        """From now on it is that many seconds ahead of the machine's."""
        # In place: the processes have these eight bytes mapped.
        with self._file.open("r+b") as opened:
            opened.write(_SECONDS.pack(ahead_s))
        self.ahead_s = ahead_s

    def environment(self, path: str) -> dict[str, str]:
        """What a process with this clock has besides; `path`: its PYTHONPATH without it."""
        return {
            "CHAOS_CLOCK": str(self._file),
            "PYTHONPATH": os.pathsep.join((str(SKEWED), path)),
        }
