"""Stops, and its child with it: a stopped process hears no polite word."""

import os
import signal

os.fork()
os.kill(os.getpid(), signal.SIGSTOP)
