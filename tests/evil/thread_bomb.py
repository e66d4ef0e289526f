"""Starts threads for ever, none of which ends."""

import threading
import time

while True:
    try:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    except RuntimeError:
        # Python 3.11 leaks a little when a thread cannot start: without a pause a fast machine
        # would see the end of a memory hog.
        time.sleep(0.001)
