"""Every door to another user; exits with the number of those that opened."""

import os

opened = 0
for attempt in (
    lambda: os.setuid(0),
    lambda: os.setgid(0),
    lambda: os.setgroups([0]),
    lambda: os.seteuid(0),
    lambda: os.setresuid(0, 0, 0),
    lambda: os.chown("/proc/self/fd/1", 0, 0),
):
    try:
        attempt()
        opened += 1
    except OSError:
        pass
raise SystemExit(opened)
