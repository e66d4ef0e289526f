"""Fixtures of the fault runs."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that commands in a sandbox can reach and write; pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="mitosis-open-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture
def passable_dir() -> Iterator[Path]:
    """Sandboxed users pass through it to their work; what is inside keeps its own rights."""
    with tempfile.TemporaryDirectory(prefix="mitosis-chaos-") as name:
        Path(name).chmod(0o711)
        yield Path(name)
