"""Bringing a task's resources to the host before its command runs.

In the order of the spec, each within 120 s; what cannot be had ends the task with a typed error.
Called by task_run, which also holds the overall limit.
"""

import asyncio

import structlog

from mitosis_protocol.specs import ResourceRef
from nodeagent.errors import ResourceRefused
from nodeagent.worker.comm import TaskOffer, WorkerComm
from nodeagent.worker.resource_files import IncomingFile, local_parts
from nodeagent.worker.retry import persist
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.transfers import Transfers
from nodeagent.worker.workspace import Workspace

log = structlog.stdlib.get_logger(__name__)

PER_FILE_S = 120.0


async def fetch_resources(
    comm: WorkerComm, transfers: Transfers, workspace: Workspace, offer: TaskOffer
) -> None:
    """Raises ResourceMissing, ResourceRefused, or TimeoutError when one file takes too long."""
    # A path we will not write is refused before anything is downloaded.
    for resource in offer.spec.resources:
        local_parts(resource.local_path)
    for resource in offer.spec.resources:
        async with asyncio.timeout(PER_FILE_S):
            await _fetch(comm, transfers, workspace, offer, resource)


async def _fetch(
    comm: WorkerComm,
    transfers: Transfers,
    workspace: Workspace,
    offer: TaskOffer,
    resource: ResourceRef,
) -> None:
    try:
        incoming = await run_blocking(
            IncomingFile, workspace.resource_dir, resource.local_path, workspace.access
        )
        with incoming:

            async def download() -> None:
                # Each try asks for a fresh URL: the last one may have expired.
                incoming.restart()
                location = await comm.resolve_resource(offer, resource.remote_file)
                await transfers.download(location, incoming.write)

            await persist(download, what="resource")
            incoming.commit()
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise
        raise ResourceRefused(f"resource cannot be written: {error.strerror}") from error
    log.debug("resource.fetched", local_path=resource.local_path, bytes=incoming.size)
