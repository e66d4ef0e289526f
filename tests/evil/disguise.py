"""Calls itself a thread of the kernel, empties its environment, and stays behind."""

import os
import sys
from pathlib import Path

if os.fork():
    sys.exit(0)
os.setsid()
Path("/proc/self/comm").write_text("kworker/0:1")
os.execve("/bin/sleep", ["[kworker/0:1]", "600"], {})
