"""Fixtures of the hook tests; imported by the test modules that use them."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from nodeagent.hooks.directories import Sandbox
from nodeagent.worker.transfers import Transfers
from tests.fakes.worker_process import living, wait_until
from tests.harness import TestServices
from tests.integration.nodeagent.hook_lab import Lab, Store

NOBODY = 65534


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that another user may pass through, which pytest's own are not."""
    path = Path(tempfile.mkdtemp(prefix="mitosis-hooks-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest_asyncio.fixture
async def lab(open_dir: Path) -> AsyncIterator[Lab]:
    """Nothing that carries its mark may live after the test."""
    transfers = Transfers()
    marker = f"test@{uuid4()}"
    yield Lab(open_dir, transfers, marker)
    await transfers.close()
    wait_until(lambda: not living(marker), within_s=10, what="no process of a hook is left")


@pytest.fixture
def store(services: TestServices) -> Store:
    return Store(services.environment)


@pytest.fixture
def sandbox() -> Sandbox:
    return Sandbox(NOBODY, NOBODY)
