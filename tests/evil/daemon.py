"""Forks twice into a session of its own, hears nothing, and pretends to have ended."""

import os
import signal
import sys
import time

if os.fork():
    sys.exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
time.sleep(600)
