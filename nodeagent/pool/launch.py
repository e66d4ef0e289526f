"""What a worker is told at its birth, from the agent through the fork server.

Built by the agent's shell (WorkerLaunch), completed by pool with what it found for the slot, and
read by the main function of a managed worker. MessagePack; no secret is in it.
"""

from collections.abc import Mapping
from uuid import UUID

import msgspec

from mitosis_protocol.ipc import WorkerSettings
from mitosis_protocol.suites import ResourceLimits
from nodeagent.ipc.server import WorkerEndpoint, WorkerKey
from nodeagent.pool.slots import SlotGroups
from nodeagent.worker.confinement import Confinement


class SlotPlan(msgspec.Struct, frozen=True):
    """One worker's share of the host. `cores` None: wherever the agent itself may run."""

    local_id: int
    cores: tuple[int, ...] | None = None
    gpus: tuple[str, ...] = ()
    limits: ResourceLimits | None = None


class WorkerLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the agent decides about a worker."""

    key: WorkerKey
    endpoint: WorkerEndpoint
    slot: SlotPlan
    suite_uuid: UUID
    work_dir: str
    env: Mapping[str, str] = {}  # what commands inherit
    settings: WorkerSettings = WorkerSettings()
    store_origin: str = ""
    log_level: str = "info"
    log_format: str = "console"
    faults: str = ""  # a plan of mitosis_protocol.faults; commands never see it


class SlotSetup(msgspec.Struct, frozen=True):
    """What the slot is made of: its groups, its commands' user, cores to set by affinity."""

    groups: SlotGroups = SlotGroups()
    uid: int | None = None
    gid: int | None = None
    affinity: tuple[int, ...] = ()
    limits: ResourceLimits | None = None

    def confinement(self, directories: tuple[str, ...]) -> Confinement:
        return Confinement(directories, self.affinity, self.uid, self.gid)


class WorkerStart(msgspec.Struct, frozen=True):
    """The whole message to a newborn worker."""

    launch: WorkerLaunch
    setup: SlotSetup


_DECODER = msgspec.msgpack.Decoder(WorkerStart)


def encode_start(start: WorkerStart) -> bytes:
    return msgspec.msgpack.encode(start)


def decode_start(data: bytes, descriptors: list[int]) -> WorkerStart:
    """With the endpoint's descriptor as the worker knows it."""
    start = _DECODER.decode(data)
    if not descriptors:
        return start
    endpoint = msgspec.structs.replace(start.launch.endpoint, fd=descriptors[0])
    return WorkerStart(msgspec.structs.replace(start.launch, endpoint=endpoint), start.setup)
