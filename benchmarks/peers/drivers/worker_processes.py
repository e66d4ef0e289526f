"""Worker processes that a driver starts beside itself, as a user of that peer does."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

GRACE_S = 10


@contextmanager
def running(*modules: list[str], store: str) -> Iterator[None]:
    """`python -m` with each of these words; they find their store as PEER_STORE."""
    environ = {**os.environ, "PEER_STORE": store}
    processes = [
        subprocess.Popen([sys.executable, "-m", *words], stdin=subprocess.DEVNULL, env=environ)
        for words in modules
    ]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(GRACE_S)
