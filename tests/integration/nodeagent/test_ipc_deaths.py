"""Deaths on either side of the IPC: nobody else waits, nothing is left in memory or on disk."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from nodeagent.ipc import sweep
from nodeagent.ipc.iceoryx_services import remove_leftovers
from nodeagent.ipc.names import is_agent_alive, prefix_of
from nodeagent.ipc.server import TransportName, WorkerKey, WorkerReady
from nodeagent.ipc.transport import make_server
from tests.fakes.ipc_agent import SHM, IpcAgent, count_descriptors, left_behind, make_item
from tests.fakes.ipc_workers import IpcWorkers, Worker

REPO = Path(__file__).parents[3]
KILLS = 5
STALL_US = 50_000.0
STRANGER = 65_534


def test_the_death_of_a_worker_stalls_nobody(agent: IpcAgent) -> None:
    """A stall would show at every death; a busy machine shows something at some of them."""
    agent.server.put([make_item(n) for n in range(100_000)])
    slowest: list[float] = []
    for round_ in range(KILLS):
        victim = agent.start(0, "take", generation=round_)
        _wait_ready(agent, WorkerKey(0, round_))
        other = agent.start(1, "hurry", 300, generation=round_)
        _wait_ready(agent, WorkerKey(1, round_))
        victim.kill()
        agent.server.detach(WorkerKey(0, round_))
        other.wait()
        agent.server.detach(WorkerKey(1, round_))
        slowest.append(float(other.words()[0].split()[0]))
    assert min(slowest) < STALL_US, slowest


def test_killed_workers_leave_no_segment_and_no_descriptor(agent: IpcAgent) -> None:
    _live_and_die(agent, 0)
    _settle(agent)
    before, files = count_descriptors(), agent.left_behind()
    for generation in range(1, 6):
        _live_and_die(agent, generation)
    _settle(agent)
    assert agent.left_behind() == files
    assert count_descriptors() <= before


def test_those_who_die_within_a_moment_are_swept_together(
    ipc_workers: IpcWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[float] = []
    really_run = subprocess.run

    def run(*args: Any, **kwargs: Any) -> Any:
        runs.append(time.monotonic())
        return really_run(*args, **kwargs)

    agent = IpcAgent("iceoryx2", ipc_workers)
    try:
        workers = [agent.start(n, "take") for n in range(4)]
        for n in range(4):
            _wait_ready(agent, WorkerKey(n, 0))
        monkeypatch.setattr(sweep.subprocess, "run", run)
        for worker in workers:
            worker.kill()
        for n in range(4):
            agent.server.detach(WorkerKey(n, 0))
        _settle(agent)
        assert len(runs) == 1
    finally:
        monkeypatch.undo()
        agent.close()
        agent.remove()


def test_workers_that_leave_politely_leave_nothing(agent: IpcAgent) -> None:
    files = agent.left_behind()
    for generation in range(3):
        agent.server.put([make_item(generation)])
        worker = agent.start(0, "work", generation=generation)
        _wait_ready(agent, WorkerKey(0, generation))
        agent.wait_for(lambda n=generation: len(agent.asked()) == n + 1, "its report")
        agent.server.dismiss(WorkerKey(0, generation))
        worker.wait()
        agent.server.detach(WorkerKey(0, generation))
    assert agent.left_behind() == files


@pytest.mark.parametrize("transport", ["iceoryx2", "unix"])
def test_what_a_killed_agent_left_is_gone_after_its_next_start(
    transport: TransportName, tmp_path: Path
) -> None:
    root, uuid = Path("/tmp") / f"mi-{uuid4().hex[:8]}", uuid4()
    script = (
        "import sys, time; from pathlib import Path; from uuid import UUID\n"
        "from nodeagent.ipc.transport import make_server\n"
        "from nodeagent.ipc.server import WorkerKey\n"
        f"server = make_server({transport!r}, Path({str(root)!r}), UUID({str(uuid)!r}))\n"
        "server.open(print); [server.attach(WorkerKey(n, 0)) for n in range(3)]\n"
        "print('open', flush=True); time.sleep(600)\n"
    )
    first = subprocess.Popen([sys.executable, "-c", script], cwd=REPO, stdout=subprocess.PIPE)
    assert first.stdout is not None
    while b"open" not in first.stdout.readline():
        assert first.poll() is None
    assert is_agent_alive(root)
    if transport == "iceoryx2":
        assert len(left_behind(root, uuid)) > 20
    first.kill()
    first.wait()
    first.stdout.close()
    assert not is_agent_alive(root)
    server = make_server(transport, root, uuid)
    server.open(lambda _event: None)
    try:
        # The same local ids and generations, as after a restart.
        for n in range(3):
            server.attach(WorkerKey(n, 0))
    finally:
        server.close()
    assert left_behind(root, uuid) == []
    (root / "agent.lock").unlink()
    (root / "payloads").rmdir()
    root.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_what_somebody_else_put_in_the_place_of_its_files_is_left_alone(
    ipc_workers: IpcWorkers, tmp_path: Path
) -> None:
    """Everybody may write to shared memory: a link there leads nowhere, and the agent serves."""
    (tmp_path / "precious").touch()
    agent = IpcAgent("iceoryx2", ipc_workers)
    agent.close()
    place = SHM / f"{prefix_of(agent.manager_uuid)}root"
    assert not place.exists()
    place.symlink_to(tmp_path)
    os.lchown(place, STRANGER, STRANGER)
    twin = make_server("iceoryx2", agent.home / "ipc", agent.manager_uuid)
    try:
        twin.open(lambda _event: None)
        try:
            endpoint = twin.attach(WorkerKey(0, 0))
            assert endpoint.memory_root == endpoint.root
        finally:
            twin.close()
        assert [path.name for path in tmp_path.iterdir()] == ["precious"]
        assert place.is_symlink()
    finally:
        place.unlink()
        agent.remove()


def test_a_link_of_our_own_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    prefix = prefix_of(uuid4())
    place = SHM / f"{prefix}root"
    place.symlink_to(tmp_path)
    remove_leftovers(tmp_path / "ipc", prefix)
    assert not place.is_symlink()
    assert (tmp_path / "nodes").is_dir()


def test_a_second_agent_cannot_take_the_same_root(agent: IpcAgent) -> None:
    twin = make_server(agent.transport, agent.home / "ipc", agent.manager_uuid)
    with pytest.raises(BlockingIOError):
        twin.open(lambda _event: None)
    worker = agent.start(0, "work")
    agent.wait_for(lambda: agent.parked() == [0], "the first one serves")
    agent.server.dismiss(WorkerKey(0, 0))
    worker.wait()


def _live_and_die(agent: IpcAgent, generation: int) -> None:
    """Two workers: one killed with an attempt in hand, one while it is parked."""
    agent.server.put([make_item(generation)])
    workers: list[Worker] = []
    for local_id in (0, 1):
        workers.append(agent.start(local_id, "take", generation=generation))
        _wait_ready(agent, WorkerKey(local_id, generation))
    agent.wait_for(lambda: len(agent.parked()) == generation + 1, "one parked")
    for local_id, worker in enumerate(workers):
        worker.kill()
        agent.server.detach(WorkerKey(local_id, generation))


def _settle(agent: IpcAgent) -> None:
    """Until the sweeps of killed workers are over; one that runs holds two pipes."""
    deadline = time.monotonic() + 60
    nodes = SHM / f"{prefix_of(agent.manager_uuid)}root" / "nodes"
    while _is_sweeping() or (nodes.exists() and len(list(nodes.iterdir())) > 4):
        # A node has three files and a directory: the agent's own is left.
        assert time.monotonic() < deadline, agent.left_behind()
        time.sleep(0.02)


def _is_sweeping() -> bool:
    return any(thread.name == "ipc-sweep" for thread in threading.enumerate())


def _wait_ready(agent: IpcAgent, worker: WorkerKey) -> None:
    agent.wait_for(
        lambda: any(isinstance(e, WorkerReady) and e.worker == worker for e in list(agent.events)),
        "ready",
    )
