"""Opens a hundred thousand files; the limit is its own problem."""

import os

opened = []
try:
    while len(opened) < 100_000:
        opened.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    raise SystemExit(24) from None
