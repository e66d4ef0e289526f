"""Tries to move to another control group and to lift its own limits; exits with the successes."""

import os
from pathlib import Path

moved = 0
for line in Path("/proc/self/cgroup").read_text().splitlines():
    _, names, path = line.split(":", 2)
    for root in ("/sys/fs/cgroup", f"/sys/fs/cgroup/{names}", "/sys/fs/cgroup/unified"):
        for place in (root, f"{root}{path}/..", f"{root}{path}"):
            for name in ("cgroup.procs", "pids.max", "memory.limit_in_bytes", "memory.max"):
                try:
                    os.close(os.open(f"{place}/{name}", os.O_WRONLY))
                    moved += 1
                except OSError:
                    pass
raise SystemExit(moved)
