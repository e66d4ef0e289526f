"""Values that outlive a task in this process, and what the coordinator is told of them.

The machine's register lists `resources`, so a reconnect announces them again; a restart of the
process loses them, and its register says that, too.
"""

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from mitosis_protocol.node_calls import WorkerResource
from mitosis_protocol.timestamps import parse_rfc3339
from nodeagent.direct.events import Resources


class Shelf:
    """Resources of one worker with their values."""

    def __init__(self, worker_uuid: UUID, packages_dir: Path, resources: Resources) -> None:
        self.worker_uuid = worker_uuid
        self.packages_dir = packages_dir
        self._resources = resources  # the session's: what it says at its next register
        self._values: dict[str, object] = {}

    def put(self, resource: WorkerResource, value: object) -> None:
        self._resources[resource.resource_id] = resource
        self._values[resource.resource_id] = value

    def get(self, resource_id: str) -> object:
        resource = self._resources.get(resource_id)
        if resource is not None and _is_over(resource):
            self.discard(resource_id)
        return self._values[resource_id]

    def discard(self, resource_id: str) -> None:
        self._resources.pop(resource_id, None)
        self._values.pop(resource_id, None)


def _is_over(resource: WorkerResource) -> bool:
    return resource.expires_at is not None and parse_rfc3339(resource.expires_at) <= datetime.now(
        UTC
    )
