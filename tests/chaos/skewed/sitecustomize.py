"""Makes the wall clock of this process wrong by as many seconds as a file says at the moment.

Python imports it by its name, before any program, from the PYTHONPATH that tests.chaos.clocks
gives; the clock steps while the process runs. The monotonic clock stays right, as in real life.
"""

import mmap
import os
import struct
from pathlib import Path

import time_machine

_SECONDS = struct.Struct("=d")
_real_ns = time_machine.escape_hatch.time.time_ns


def follow(file: Path) -> None:
    with file.open("rb") as opened:
        view = mmap.mmap(opened.fileno(), _SECONDS.size, prot=mmap.PROT_READ)
    traveller = time_machine.travel(0).start()
    traveller.time_ns = lambda: _real_ns() + int(_SECONDS.unpack_from(view)[0] * 1e9)


if "CHAOS_CLOCK" in os.environ:
    follow(Path(os.environ["CHAOS_CLOCK"]))
