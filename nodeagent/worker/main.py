"""An independent worker from start to end: wire the parts, run the loop, leave cleanly.

Called by cli with a WorkerConfig. Ends the command, gives the task back, removes the directory,
in that order, whatever the reason for leaving.
"""

import asyncio

import structlog

from mitosis_protocol import faults
from mitosis_protocol.limits import LEASE_TTL_S
from nodeagent.config import WorkerConfig
from nodeagent.errors import WorkerRemoved
from nodeagent.worker.comm import WorkerComm
from nodeagent.worker.control import Stopped
from nodeagent.worker.departure import Departure
from nodeagent.worker.enrolment import Enrolment, enrol
from nodeagent.worker.housekeeping import (
    WorkspaceCleaner,
    exit_status,
    log_to_file,
    remove_workspace,
    unregister,
)
from nodeagent.worker.http_client import make_client
from nodeagent.worker.http_comm import HttpComm
from nodeagent.worker.launcher import Launcher
from nodeagent.worker.loop import Intervals, WorkerLoop
from nodeagent.worker.process_tree import hide_memory
from nodeagent.worker.task_run import TaskRunner
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.transfers import Transfers
from nodeagent.worker.workspace import Workspace

log = structlog.stdlib.get_logger(__name__)

# Settings made for existing workers say 300 s; a coordinator that knows us takes our tasks away
# after one lease without a beat, and three beats should fit into it.
_MAX_HEARTBEAT_S = LEASE_TTL_S / 3


def run_independent_worker(config: WorkerConfig) -> int:
    """Run until told to leave; the process's exit status."""
    if config.faults:
        faults.configure(config.faults)
        log.warning("faults.armed", plan=config.faults)
    # Commands run as the same user and could otherwise read our password from /proc.
    hide_memory()
    return exit_status(lambda: asyncio.run(_live(config)))


async def _live(config: WorkerConfig) -> None:
    departure = Departure()
    departure.listen()
    try:
        enrolment = await departure.unless_asked(enrol(config))
    except Stopped:
        return
    log_to_file(config, enrolment)
    structlog.contextvars.bind_contextvars(worker_uuid=str(enrolment.worker_uuid))
    log.info("worker.registered", coordinator=config.coordinator, tags=list(config.tags))
    tls = config.tls.open(config.coordinator)
    comm = HttpComm(make_client(config.coordinator, enrolment.token, tls))
    try:
        await _work(config, enrolment, comm, departure)
    except WorkerRemoved:
        # Nothing to unregister from.
        raise
    except BaseException:
        await unregister(comm)
        raise
    else:
        await unregister(comm)
    finally:
        await comm.close()


async def _work(
    config: WorkerConfig, enrolment: Enrolment, comm: WorkerComm, departure: Departure
) -> None:
    workspace = await run_blocking(Workspace.create, config.cache_dir, enrolment.worker_uuid)
    transfers = Transfers()
    launcher = Launcher()
    try:
        await WorkerLoop(
            comm,
            TaskRunner(comm, transfers, launcher, workspace, config.command_env),
            WorkspaceCleaner(workspace),
            departure,
            Intervals(config.polling_interval_s, _heartbeat_s(config), config.grace_s),
        ).run()
    finally:
        await launcher.close()
        await transfers.close()
        await remove_workspace(workspace)


def _heartbeat_s(config: WorkerConfig) -> float:
    if config.heartbeat_interval_s > _MAX_HEARTBEAT_S:
        log.warning(
            "worker.heartbeat_shortened", asked_s=config.heartbeat_interval_s, to_s=_MAX_HEARTBEAT_S
        )
    return min(config.heartbeat_interval_s, _MAX_HEARTBEAT_S)
