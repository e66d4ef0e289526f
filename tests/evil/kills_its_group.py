"""The process group it was put into."""

import os
import signal

os.kill(0, signal.SIGKILL)
