"""A worker's IPC over shared memory. Made by open_client, after the fork: see iceoryx_services."""

from collections.abc import Callable
from typing import Any

import iceoryx2
from typing_extensions import override

from nodeagent.errors import WorkerRemoved
from nodeagent.ipc import iceoryx_services as services
from nodeagent.ipc import names
from nodeagent.ipc.client import Client, Published
from nodeagent.ipc.server import ServiceName, WorkerEndpoint


class IceoryxClient(Client):
    """Three services to ask on, a topic to hear, a bell to be woken by, and the agent's to ring."""

    def __init__(self, endpoint: WorkerEndpoint, on_published: Callable[[Published], None]) -> None:
        super().__init__(endpoint, on_published)
        prefix, worker = endpoint.prefix, endpoint.worker
        try:
            self._node = services.make_node(endpoint.memory_root, prefix)
            self._ports: dict[ServiceName, Any] = {
                service: services.sending(
                    services.request_service(
                        self._node, names.service_name(prefix, worker, service)
                    )
                    .open()
                    .client_builder()
                )
                for service in names.SERVICES
            }
            self._topic = (
                services.topic(self._node, names.topic_name(prefix, worker))
                .open()
                .subscriber_builder()
                .create()
            )
            bell = services.worker_doorbell(
                self._node, names.worker_doorbell_name(prefix, worker)
            ).open()
            self._listener, self._fd = services.listen(bell, endpoint.memory_root)
            self._bell = (
                services.agent_doorbell(self._node, names.agent_doorbell_name(prefix))
                .open()
                .notifier_builder()
                .create()
            )
        except services.OpenFailed as error:
            raise WorkerRemoved(f"the agent's services cannot be opened: {error}") from error
        self._rings = {
            service: iceoryx2.EventId.new(names.ring_of(worker, service))
            for service in names.SERVICES
        }
        self._pending: dict[int, Any] = {}
        self._loop.add_reader(self._fd, self._on_ring)

    def close(self) -> None:
        """Leave nothing in shared memory."""
        self._loop.remove_reader(self._fd)
        self._pending.clear()
        for port in (*self._ports.values(), self._topic, self._bell, self._listener):
            port.delete()
        self._ports.clear()
        del self._node

    @override
    def _post(self, service: ServiceName, request_id: int, data: bytes) -> None:
        self._pending[request_id] = services.send(self._ports[service], data)
        self._bell.notify_with_custom_event_id(self._rings[service])

    @override
    def _poll(self) -> bool:
        is_news = False
        for request_id, pending in list(self._pending.items()):
            response = pending.receive()
            if response is not None:
                data = services.read(response)
                response.delete()
                del self._pending[request_id]
                pending.delete()
                self._answered(data, request_id)
                is_news = True
        while (sample := self._topic.receive()) is not None:
            data = services.read(sample)
            sample.delete()
            self._published(data)
            is_news = True
        return is_news

    @override
    def _forget(self, request_id: int) -> None:
        pending = self._pending.pop(request_id, None)
        if pending is not None:
            # The agent sees that nobody waits, and keeps the item for somebody else.
            pending.delete()

    def _on_ring(self) -> None:
        self._listener.try_wait()
        self._poll()
