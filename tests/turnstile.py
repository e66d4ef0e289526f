"""Lets tests that measure run alone, while all others run in several processes at once.

Loaded as a pytest plugin. Two lock files are shared by the processes of one run: every test holds
the machine lock, shared or (marked `alone`) exclusively. The turnstile is held while waiting, so
that a test that wants to be alone gets its turn instead of being overtaken for ever.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_RUN_ID = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Around everything, the time limit of the test included: waiting here is not its fault."""
    if not _RUN_ID:
        return (yield)
    is_alone = item.get_closest_marker("alone") is not None
    with _lock_file("turnstile").open("w") as turnstile, _lock_file("machine").open("w") as machine:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        fcntl.flock(machine, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        fcntl.flock(turnstile, fcntl.LOCK_UN)
        return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _RUN_ID and os.environ.get("PYTEST_XDIST_WORKER") == "gw0":
        for name in ("turnstile", "machine"):
            _lock_file(name).unlink(missing_ok=True)


def _lock_file(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"mitosis-{name}-{_RUN_ID}.lock"
