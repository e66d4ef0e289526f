"""Mounts over the system and changes its root; exits with the number of calls that worked."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
worked = 0
worked += libc.mount(b"none", b"/mnt", b"tmpfs", 0, b"size=1m") == 0
worked += libc.mount(b"/", b"/", None, 4096 | 16384, None) == 0
worked += libc.sethostname(b"mine", 4) == 0
try:
    os.chroot("/tmp")
    worked += 1
except OSError:
    pass
raise SystemExit(worked)
