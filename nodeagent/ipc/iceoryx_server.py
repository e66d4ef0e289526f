"""The IPC server over iceoryx2: a set of services per worker, one doorbell for the agent.

One thread, or the agent's loop, sleeps on the doorbell; a ring says which worker to look at, and
fetches are answered there and then. Answers from elsewhere go out on the caller's thread: the ports
are thread-safe and a hop would cost more than the sending. Built by the agent's shell; see
iceoryx_services.
"""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import iceoryx2
import structlog

from mitosis_protocol.ipc import Control, WorkerSettings
from nodeagent.ipc import iceoryx_services as services
from nodeagent.ipc import names
from nodeagent.ipc.customer import Customer, Undeliverable
from nodeagent.ipc.desk import Desk
from nodeagent.ipc.server import IpcEvent, OnLoop, ServiceName, WorkerEndpoint, WorkerKey
from nodeagent.ipc.sweep import Sweeper

log = structlog.stdlib.get_logger(__name__)

_INTERRUPTED: Final = "InterruptSignal"
_JOIN_S: Final = 10.0


class _Attached:
    """The agent's ports towards one worker."""

    def __init__(self, node: Any, prefix: str, customer: Customer) -> None:
        self.customer = customer
        worker = customer.key
        self._services: list[Any] = []
        self.servers: tuple[tuple[ServiceName, Any], ...] = tuple(
            (name, self._server(node, names.service_name(prefix, worker, name)))
            for name in names.SERVICES
        )
        channel = services.topic(node, names.topic_name(prefix, worker)).create()
        bell = services.worker_doorbell(node, names.worker_doorbell_name(prefix, worker)).create()
        self._services += (channel, bell)
        self.topic = services.growing(channel.publisher_builder())
        self.bell = bell.notifier_builder().create()

    def _server(self, node: Any, name: str) -> Any:
        service = services.request_service(node, name).create()
        self._services.append(service)
        return services.growing(service.server_builder())

    def close(self) -> None:
        for _, server in self.servers:
            server.delete()
        self.topic.delete()
        self.bell.delete()
        self.servers = ()
        self._services.clear()


class _Line:
    """The way back for one request."""

    __slots__ = ("_active", "_bell")

    def __init__(self, active: Any, bell: Any) -> None:
        self._active = active
        self._bell = bell

    def send(self, data: bytes) -> None:
        if not self._active.is_connected:
            raise Undeliverable("nobody waits for the answer")
        try:
            services.send(self._active, data)
            self._active.delete()
            self._bell.notify()
        except services.SendFailed as error:
            raise Undeliverable(str(error)) from error


class IceoryxServer(Desk):
    """Serves all workers of one agent."""

    def __init__(self, root: Path, manager_uuid: UUID) -> None:
        super().__init__()
        self._root = root
        self._prefix = names.prefix_of(manager_uuid)
        self._lock_fd = -1
        self._node: Any = None
        self._listener: Any = None
        self._own_bell: Any = None
        self._attached: dict[WorkerKey, _Attached] = {}
        self._by_ring: dict[int, list[_Attached]] = {}
        self._fd = -1
        self._thread: threading.Thread | None = None
        self._on_loop: OnLoop | None = None
        self._sweeper = Sweeper(root, self._prefix)
        self._is_closing = False

    def open(self, on_event: Callable[[IpcEvent], None], on_loop: OnLoop | None = None) -> None:
        self._lock_fd = names.open_root(self._root)
        # We hold the lock: whatever is here belongs to a life that has ended.
        services.remove_leftovers(self._root, self._prefix)
        services.allow_many_descriptors()
        self._on_event = on_event if on_loop is None else on_loop.note
        self._node = services.make_node(str(self._root), self._prefix)
        bell = services.agent_doorbell(self._node, names.agent_doorbell_name(self._prefix)).create()
        self._listener, self._fd = services.listen(bell, str(self._root))
        self._own_bell = bell.notifier_builder().create()
        if on_loop is None:
            self._thread = threading.Thread(target=self._serve, name="ipc", daemon=True)
            self._thread.start()
        else:
            self._on_loop = on_loop
            on_loop.loop.call_soon_threadsafe(on_loop.loop.add_reader, self._fd, self._on_ring)

    def attach(self, worker: WorkerKey) -> WorkerEndpoint:
        directory = names.worker_directory(self._root, worker)
        directory.mkdir(mode=0o700, parents=True)
        # Outside the lock: it takes milliseconds, and the others go on being served.
        attached = _Attached(self._node, self._prefix, Customer(worker, directory))
        with self._lock:
            self._admit(attached.customer)
            self._attached[worker] = attached
            self._by_ring.setdefault(names.ring_of(worker), []).append(attached)
        return WorkerEndpoint(
            transport="iceoryx2",
            worker=worker,
            root=str(self._root),
            directory=str(directory),
            prefix=self._prefix,
        )

    def detach(self, worker: WorkerKey) -> None:
        with self._lock:
            attached = self._attached.pop(worker, None)
            if attached is None:
                return
            self._by_ring[names.ring_of(worker)].remove(attached)
            self._discharge(worker)
            is_left_over = services.count_nodes(self._root) > len(self._attached) + 1
        attached.close()
        shutil.rmtree(names.worker_directory(self._root, worker), ignore_errors=True)
        if is_left_over:
            # It was killed. Cleaning up after a dead node takes 20-60 ms with the GIL held, so
            # that is done by a process of its own.
            self._sweeper.sweep_soon()

    def publish(self, message: Control | WorkerSettings) -> None:
        with self._lock:
            for customer in self._audience(message):
                attached = self._attached[customer.key]
                try:
                    services.send(attached.topic, customer.payloads.pack(message))
                    attached.bell.notify()
                except (*services.SendFailed, OSError) as error:
                    self._counts["undelivered"] += 1
                    log.info("ipc.undelivered", worker=customer.key.local_id, error=str(error))
                else:
                    self._counts["published"] += 1

    def close(self) -> None:
        if self._thread is None and self._on_loop is None:
            return
        self._is_closing = True
        self._stop_hearing()
        self._sweeper.close()
        for worker in list(self._attached):
            self.detach(worker)
        self._sweeper.close()
        self._own_bell.delete()
        self._listener.delete()
        self._node = self._listener = self._own_bell = None
        services.remove_leftovers(self._root, self._prefix)
        os.close(self._lock_fd)

    def _stop_hearing(self) -> None:
        if self._on_loop is not None:
            loop, self._on_loop = self._on_loop.loop, None
            is_over = threading.Event()
            loop.call_soon_threadsafe(loop.remove_reader, self._fd)
            loop.call_soon_threadsafe(is_over.set)
            is_over.wait(_JOIN_S)
        if self._thread is not None:
            self._own_bell.notify_with_custom_event_id(iceoryx2.EventId.new(services.STOP_RING))
            self._thread.join(_JOIN_S)
            self._thread = None

    def _serve(self) -> None:
        while not self._is_closing:
            self._hear(self._listener.blocking_wait)

    def _on_ring(self) -> None:
        on_loop = self._on_loop
        if on_loop is not None:
            self._hear(self._listener.try_wait)
            on_loop.end_round()

    def _hear(self, wait: Callable[[], Any]) -> None:
        try:
            rings = wait()
        except iceoryx2.ListenerWaitError as error:
            # A stop and a continue (a suspended laptop, a debugger) ends the call, too.
            if str(error) != _INTERRUPTED:
                raise
            return
        with self._lock:
            for ring in rings:
                for attached in self._by_ring.get(ring.id.as_value, ()):
                    self._look_at(attached)

    def _look_at(self, attached: _Attached) -> None:
        for service, server in attached.servers:
            try:
                while (active := server.receive()) is not None:
                    data = services.read(active)
                    self._heard(attached.customer, service, data, _Line(active, attached.bell))
            except services.ReceiveFailed as error:
                worker = attached.customer.key.local_id
                log.warning("ipc.not_received", worker=worker, service=service, error=str(error))
