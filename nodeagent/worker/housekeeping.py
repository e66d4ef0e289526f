"""What every kind of worker process does around its work: exit status, directories, log files.

Called by main (independent workers) and nodeagent.direct.worker.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from nodeagent.config import WorkerConfig
from nodeagent.errors import AgentError, FatalError, HostUnusable, WorkerRemoved
from nodeagent.log_setup import configure_logging
from nodeagent.worker.comm import WorkerComm
from nodeagent.worker.enrolment import Enrolment
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.workspace import Workspace

log = structlog.stdlib.get_logger(__name__)

# A coordinator that does not answer must not hold up a machine that is shutting down.
_UNREGISTER_S = 3.0


def exit_status(live: Callable[[], None]) -> int:
    """Run a worker's life; the process's exit status."""
    try:
        live()
    except KeyboardInterrupt:
        # Before or after the time in which signals are listened to.
        return 130
    except WorkerRemoved as end:
        log.warning("worker.removed", reason=str(end))
        return end.exit_code
    except FatalError as end:
        log.critical("worker.failed", reason=str(end), kind=type(end).__name__)
        return end.exit_code
    log.info("worker.left")
    return 0


class WorkspaceCleaner:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def reset(self) -> None:
        try:
            await run_blocking(self._workspace.reset)
        except OSError as error:
            raise HostUnusable(f"the work directory cannot be emptied: {error}") from error


async def remove_workspace(workspace: Workspace) -> None:
    try:
        await run_blocking(workspace.remove)
    except OSError as error:
        log.warning("workspace.not_removed", path=str(workspace.root), error=str(error))


async def unregister(comm: WorkerComm) -> None:
    try:
        async with asyncio.timeout(_UNREGISTER_S):
            await comm.unregister()
    except (TimeoutError, AgentError) as error:
        log.warning("worker.not_unregistered", error=str(error) or "timed out")


def log_to_file(config: WorkerConfig, enrolment: Enrolment) -> None:
    if not (config.file_log or config.shared_log or config.log_path):
        return
    name = "shared" if config.shared_log else str(enrolment.worker_uuid)
    default = config.cache_dir / "mitosis" / "worker" / f"{name}.log"
    file: Path = config.log_path or default
    configure_logging(level=config.log_level, form=config.log_format, file=file)
