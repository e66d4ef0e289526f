"""How full the host is, in per cent of memory and disk: what decides whether to take more work.

Called by `worker` every few seconds; half a millisecond, no child process.
"""

from pathlib import Path

import psutil

from nodeagent.direct.events import Measured


def measure(work_dir: Path) -> Measured:
    """A look at memory, the disk of `work_dir` and the processors since the last look."""
    machine = float(psutil.virtual_memory().percent)
    disk = psutil.disk_usage(str(work_dir))
    return Measured(
        mem_pct=min(100.0, machine),
        disk_pct=min(100.0, float(disk.percent)),
        cpu_pct=min(100.0, float(psutil.cpu_percent(interval=None))),
    )
