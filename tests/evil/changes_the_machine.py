"""Opens what only the machine's owner may write; writes nothing. Exits with what opened."""

import os

opened = 0
for name in (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sysrq-trigger",
    "/dev/mem",
    "/dev/kmsg",
    "/etc/passwd",
    "/etc/ld.so.preload",
):
    try:
        os.close(os.open(name, os.O_WRONLY))
        opened += 1
    except OSError:
        pass
raise SystemExit(opened)
