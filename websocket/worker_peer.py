"""Who is at the other end of a direct worker's socket. Made by websocket.worker_presence."""

from dataclasses import dataclass
from uuid import UUID

from django.conf import settings

from accounts.actors import Actor
from mitosis_protocol.control_plane import Sender
from websocket.takeovers import Takeover
from workers.services.control_plane import Tenant


@dataclass(slots=True)
class WorkerPeer:
    """One accepted connection of one direct worker; all of it follows from its token."""

    runner_id: int
    runner_uuid: UUID
    session_epoch: int
    tenant: Tenant
    ip: str | None = None
    process_id: UUID | None = None
    takeover: Takeover | None = None

    @property
    def session_id(self) -> str:
        return f"{self.runner_uuid}.{self.session_epoch}"

    @property
    def drain_mem_pct(self) -> float:
        """At or above no more work; the tenant's own number before the installation's."""
        own = self.tenant.drain_mem_pct
        return settings.MITOSIS.worker_drain_mem_pct if own is None else own

    @property
    def drain_disk_pct(self) -> float:
        own = self.tenant.drain_disk_pct
        return settings.MITOSIS.worker_drain_disk_pct if own is None else own

    @property
    def known_as(self) -> dict[str, str]:
        """In every log line about this worker's session."""
        return {"tenant": self.tenant.name, "sender.id": str(self.runner_uuid)}

    @property
    def voice(self) -> Sender:
        """As whom the scheduler speaks to it."""
        return Sender(role="scheduler", id=f"session-{self.session_epoch}")

    @property
    def actor(self) -> Actor:
        return Actor(kind="direct", id=str(self.runner_uuid), ip=self.ip)
