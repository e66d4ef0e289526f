"""Everybody it is allowed to signal, which must be nobody but itself and its own."""

import os
import signal
import time

# With the rights of somebody real this would end the machine's work, and not only the test's.
if os.getuid() < 60_000:
    raise SystemExit("not in a sandbox")
os.kill(-1, signal.SIGKILL)
time.sleep(600)
