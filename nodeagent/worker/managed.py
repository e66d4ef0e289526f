"""The main function of a managed worker, called in a fresh fork of the pool's fork server.

Order matters: the launcher is forked before anything is opened; then the loop, the IPC, the slot.
The worker ends when its agent dismisses it or is gone; every command of its slot ends first.
"""

import asyncio
import os
from pathlib import Path

import structlog

from mitosis_protocol import faults
from mitosis_protocol.ipc import CancelTask, Shutdown, WorkerSettings
from nodeagent.errors import FatalError, HostUnusable, WorkerRemoved
from nodeagent.ipc.client import Published
from nodeagent.ipc.transport import open_client, preload
from nodeagent.log_setup import configure_logging
from nodeagent.pool.launch import WorkerStart, decode_start
from nodeagent.worker.control import StopReason
from nodeagent.worker.departure import Departure
from nodeagent.worker.ipc_comm import IpcComm
from nodeagent.worker.launcher_process import StartedLauncher
from nodeagent.worker.loop import Intervals, WorkerLoop
from nodeagent.worker.process_tree import hide_memory
from nodeagent.worker.slot import SlotRunner, prepare_launcher
from nodeagent.worker.slot_space import SlotSpace
from nodeagent.worker.task_run import TaskRunner
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.transfers import Transfers

log = structlog.stdlib.get_logger(__name__)


def main(data: bytes, descriptors: list[int]) -> int:
    """The process's exit status."""
    start = decode_start(data, descriptors)
    first = prepare_launcher(start.setup)
    launch = start.launch
    # The agent tells the life of each task; three lines more from here would cost 0.1 ms.
    level = "warning" if launch.log_level == "info" else launch.log_level
    configure_logging(level=level, form=launch.log_format, is_final=True)
    structlog.contextvars.bind_contextvars(worker=launch.key.local_id)
    if launch.faults:
        faults.configure(launch.faults)
    hide_memory()
    try:
        asyncio.run(_live(start, first))
    except WorkerRemoved as end:
        log.info("worker.removed", reason=str(end))
        return end.exit_code
    except FatalError as end:
        log.critical("worker.failed", reason=str(end), kind=type(end).__name__)
        return end.exit_code
    return 0


class _Life:
    """What the agent publishes, and whom it concerns here."""

    def __init__(self) -> None:
        self.departure = Departure()
        self.loop: WorkerLoop | None = None
        self.comm: IpcComm | None = None

    def obey(self, message: Published) -> None:
        """Called by the client for every message of the topic."""
        if isinstance(message, CancelTask):
            is_revoked = message.why == "revoked"
            reason = StopReason.REVOKED if is_revoked else StopReason.CANCELLED
            if self.loop is not None:
                self.loop.stop(message.attempt_id, reason)
        elif isinstance(message, Shutdown):
            # A graceful one is said by the answer to the next fetch: nothing handed out is lost.
            if not message.graceful:
                self.departure.hurry()
        elif isinstance(message, WorkerSettings):
            self.adopt(message)

    def adopt(self, settings: WorkerSettings) -> None:
        if self.comm is not None:
            self.comm.settings = settings
        if self.loop is not None:
            self.loop.set_heartbeat(settings.heartbeat_interval_s)


async def _live(start: WorkerStart, first: StartedLauncher) -> None:
    launch = start.launch
    life = _Life()
    life.departure.listen()
    slot = SlotRunner(start.setup, first)
    client = open_client(launch.endpoint, life.obey)
    comm = IpcComm(
        client,
        Path(launch.endpoint.root),
        launch.settings,
        on_over=life.departure.leave,
        is_leaving=lambda: life.departure.is_asked,
    )
    life.comm = comm
    try:
        await _work(start, slot, comm, life)
    finally:
        await slot.close()
        await comm.close()


async def _work(start: WorkerStart, slot: SlotRunner, comm: IpcComm, life: _Life) -> None:
    launch, setup = start.launch, start.setup
    owner = None if setup.uid is None or setup.gid is None else (setup.uid, setup.gid)
    space = SlotSpace(Path(launch.work_dir), owner)
    await run_blocking(space.make)
    await slot.open()
    transfers = Transfers()
    settings = launch.settings
    life.loop = WorkerLoop(
        comm,
        TaskRunner(comm, transfers, slot, space, launch.env),
        _SpaceCleaner(space),
        life.departure,
        # Nothing is polled: a fetch is answered when there is work.
        Intervals(polling_s=0.0, heartbeat_s=settings.heartbeat_interval_s, grace_s=0.0),
    )
    try:
        await comm.ready(os.getpid(), slot.trouble())
        await life.loop.run()
        await comm.unregister()
    finally:
        await transfers.close()


class _SpaceCleaner:
    def __init__(self, space: SlotSpace) -> None:
        self._space = space

    async def reset(self) -> None:
        try:
            if not self._space.is_spotless():
                await run_blocking(self._space.reset)
        except OSError as error:
            raise HostUnusable(f"the work directory cannot be emptied: {error}") from error


preload()
