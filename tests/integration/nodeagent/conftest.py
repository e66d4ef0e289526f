"""A coordinator, a worker process against it, and a marker to find what it started."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from nodeagent.ipc.server import TransportName
from tests.fakes.http_coordinator import FakeCoordinator
from tests.fakes.ipc_agent import IpcAgent
from tests.fakes.ipc_workers import IpcWorkers
from tests.fakes.worker_process import WorkerProcess, living, running_worker, wait_until


@pytest.fixture
def coordinator() -> Iterator[FakeCoordinator]:
    fake = FakeCoordinator()
    fake.http.start()
    yield fake
    fake.http.stop()
    fake.assert_drained()


@pytest.fixture
def start_worker(
    tmp_path: Path, coordinator: FakeCoordinator
) -> Iterator[Callable[..., WorkerProcess]]:
    """Start workers that end with the test."""
    with ExitStack() as stack:

        def start(*flags: str, **env: str) -> WorkerProcess:
            home = tmp_path / f"home-{uuid4().hex[:6]}"
            home.mkdir()
            return stack.enter_context(running_worker(home, coordinator, *flags, **env))

        yield start


@pytest.fixture
def marker() -> Iterator[str]:
    """A word to put into a task's environment; nothing with it may live after the test."""
    word = f"marker-{uuid4()}"
    yield word
    wait_until(lambda: not living(word), within_s=5, what="no process of the task is left")


@pytest.fixture(scope="module")
def ipc_workers() -> Iterator[IpcWorkers]:
    """A fork server for IPC tests, which has opened nothing."""
    workers = IpcWorkers()
    yield workers
    workers.close()


@pytest.fixture(params=["iceoryx2", "iceoryx2 on a loop", "unix"])
def agent(request: pytest.FixtureRequest, ipc_workers: IpcWorkers) -> Iterator[IpcAgent]:
    """One per way of serving; it leaves nothing behind."""
    transport: TransportName = "unix" if request.param == "unix" else "iceoryx2"
    agent = IpcAgent(transport, ipc_workers, is_on_loop="loop" in request.param)
    yield agent
    agent.close()
    assert agent.left_behind() == []
    agent.remove()
