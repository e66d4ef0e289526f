"""Starts threads for ever, none of which ends."""

import contextlib
import threading
import time

while True:
    with contextlib.suppress(RuntimeError):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
