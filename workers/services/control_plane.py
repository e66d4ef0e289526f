"""A direct worker as its socket tells it: tenant, process, capabilities, resources.

Called by websocket.worker_session and its handlers; one statement each, through the pool. What a
session says counts only while it is the newest one.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from accounts.actors import SYSTEM
from accounts.services.audit import arecord
from core.errors import DomainError, PermissionDenied, Superseded
from core.pg import get_pool, load_sql
from mitosis_protocol.control_payloads import (
    MAX_PACKAGES_OF_WORKER,
    InstalledPackage,
    PkgEvent,
    Register,
)
from mitosis_protocol.enums import DesiredState
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.node_calls import WorkerResource, node_tag

log = structlog.get_logger(__name__)

_MEET: Final = load_sql("workers", "control_meet")
_PROCESS: Final = load_sql("workers", "control_process")
_REGISTER: Final = load_sql("workers", "control_register")
_PACKAGE: Final = load_sql("workers", "control_package")
_RESOURCES: Final = load_sql("workers", "control_resources")
_FORGET: Final = load_sql("workers", "control_forget_resources")
_WISH: Final = load_sql("workers", "control_wish")
_QUARANTINE: Final = load_sql("workers", "control_quarantine")


@dataclass(frozen=True, slots=True)
class Tenant:
    """The one group a direct worker serves; bound at its registration, known from its token."""

    group_id: int
    name: str
    has_consented: bool
    drain_mem_pct: float | None = None  # None: the policy's
    drain_disk_pct: float | None = None


async def read_tenant(runner_id: int) -> Tenant:
    """Raises PermissionDenied for a worker without one: it was registered for another wire."""
    rows = await get_pool().fetch(_MEET, {"runner_id": runner_id})
    if not rows:
        raise PermissionDenied("this worker serves no group on the control plane")
    return Tenant(*rows[0])


async def note_process(*, runner_id: int, session_epoch: int, process_id: uuid.UUID) -> None:
    """Remember who speaks. Raises Superseded."""
    parameters = {
        "runner_id": runner_id,
        "session_epoch": session_epoch,
        "process_id": process_id,
    }
    if await get_pool().execute(_PROCESS, parameters) != 1:
        raise Superseded("a newer session of this worker took over")


async def note_register(*, runner_id: int, session_epoch: int, said: Register) -> None:
    """Keep what the worker can do and what lives on it. Raises Superseded."""
    capabilities = {
        **msgspec.to_builtins(said.capabilities),
        "packages": msgspec.to_builtins(said.packages),
    }
    node_types = sorted(set(said.capabilities.node_types))
    async with get_pool().transaction() as conn:
        done = await conn.execute(
            _REGISTER,
            {
                "runner_id": runner_id,
                "session_epoch": session_epoch,
                "capabilities": msgspec.json.encode(capabilities).decode(),
                "node_tags": [node_tag(node_type) for node_type in node_types],
            },
        )
        if done.rowcount != 1:
            raise Superseded("a newer session of this worker took over")
        kept = [one.resource_id for one in said.resources]
        await conn.execute(_FORGET, {"runner_id": runner_id, "kept": kept})
        if said.resources:
            await conn.execute(_RESOURCES, _resources(runner_id, said.resources, None))


async def note_package(*, runner_id: int, session_epoch: int, said: PkgEvent) -> None:
    """Keep what an install or uninstall changed. Raises Superseded."""
    if said.status not in ("installed", "removed"):
        return
    here = InstalledPackage(name=said.name, version=said.version, sha256=said.sha256)
    is_here = said.status == "installed"
    parameters = {
        "runner_id": runner_id,
        "session_epoch": session_epoch,
        "name": said.name,
        "version": said.version,
        "installed": msgspec.json.encode(here).decode() if is_here else None,
        "most": MAX_PACKAGES_OF_WORKER,
    }
    if await get_pool().execute(_PACKAGE, parameters) != 1:
        raise Superseded("a newer session of this worker took over")


async def note_resources(
    *, runner_id: int, resources: Sequence[WorkerResource], task_uuid: uuid.UUID | None
) -> None:
    """What a result left on the worker; inline ones are in the result itself."""
    lasting = [one for one in resources if not one.inline]
    if lasting:
        await get_pool().execute(_RESOURCES, _resources(runner_id, lasting, task_uuid))


async def read_wish(runner_id: int) -> DesiredState:
    rows = await get_pool().fetch(_WISH, {"runner_id": runner_id})
    return DesiredState.from_code(rows[0][0]) if rows else DesiredState.SHUTDOWN


async def quarantine_worker(runner_id: int) -> None:
    """No new tasks for a worker whose sessions replace each other all the time; never raises."""
    log.error("worker.clones_suspected", runner_id=runner_id)
    try:
        if await get_pool().execute(_QUARANTINE, {"runner_id": runner_id}):
            await arecord(
                actor=SYSTEM,
                action="worker.quarantine",
                target=str(runner_id),
                detail={"reason": "two processes seem to share this worker's identity"},
            )
    except DomainError as error:
        log.warning("worker.quarantine_failed", runner_id=runner_id, reason=error.message)


def check_resources(runner_uuid: uuid.UUID, resources: Sequence[WorkerResource]) -> None:
    """A worker speaks about what is on itself. Raises PermissionDenied."""
    if any(one.worker_id != runner_uuid for one in resources):
        raise PermissionDenied(
            "worker_id of a resource is not the token's",
            code=ErrorCode.PROTOCOL_IDENTITY_MISMATCH,
        )


def _resources(
    runner_id: int, resources: Sequence[WorkerResource], task_uuid: uuid.UUID | None
) -> dict[str, object]:
    return {
        "runner_id": runner_id,
        "resources": msgspec.json.encode(resources).decode(),
        "task_uuid": task_uuid,
    }
