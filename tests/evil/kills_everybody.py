"""Everybody it is allowed to signal, which must be nobody but itself and its own."""

import os
import signal
import time

os.kill(-1, signal.SIGKILL)
time.sleep(600)
