"""The IPC server over iceoryx2: a set of services per worker, one doorbell for the agent.

One thread, or the agent's loop, sleeps on the doorbell; a ring says which worker to look at, and
fetches are answered there and then. Answers from elsewhere go out on the caller's thread: the ports
are thread-safe and a hop would cost more than the sending. Built by the agent's shell; see
iceoryx_services.
"""

import os
import shutil
import threading
import time
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
_OTHERS_S: Final = 0.0001


def _let_others_in() -> None:
    """Every call into iceoryx2 keeps the GIL, and who waits for it asks only after 5 ms."""
    time.sleep(_OTHERS_S)


class _Attached:
    """The agent's ports towards one worker; made and closed beside the thread that serves."""

    def __init__(self, node: Any, prefix: str, customer: Customer) -> None:
        self.customer = customer
        worker = customer.key
        self._services: list[Any] = []
        self.servers: tuple[tuple[ServiceName, Any], ...] = tuple(
            (name, self._server(node, names.service_name(prefix, worker, name)))
            for name in names.SERVICES
        )
        channel = self._create(services.topic(node, names.topic_name(prefix, worker)))
        self.topic = services.sending(channel.publisher_builder())
        _let_others_in()
        bell = self._create(
            services.worker_doorbell(node, names.worker_doorbell_name(prefix, worker))
        )
        self.bell = bell.notifier_builder().create()

    def _server(self, node: Any, name: str) -> Any:
        service = self._create(services.request_service(node, name))
        server = services.sending(service.server_builder())
        _let_others_in()
        return server

    def _create(self, builder: Any) -> Any:
        service = builder.create()
        self._services.append(service)
        _let_others_in()
        return service

    def close(self) -> None:
        ports = [*(server for _, server in self.servers), self.topic, self.bell]
        self.servers = ()
        for port in ports:
            port.delete()
            _let_others_in()
        while self._services:
            del self._services[-1]
            _let_others_in()


class _Line:
    """The way back for one request."""

    __slots__ = ("_active", "_bell")

    def __init__(self, active: Any, bell: Any) -> None:
        self._active = active
        self._bell = bell

    def send(self, data: bytes, *, is_urgent: bool = True) -> None:
        if not self._active.is_connected:
            raise Undeliverable("nobody waits for the answer")
        try:
            services.send(self._active, data)
            self._active.delete()
            if is_urgent:
                self._bell.notify()
        except services.SendFailed as error:
            raise Undeliverable(str(error)) from error


class IceoryxServer(Desk):
    """Serves all workers of one agent."""

    def __init__(self, root: Path, manager_uuid: UUID) -> None:
        super().__init__(root)
        self._root = root
        self._memory_root = root
        self._prefix = names.prefix_of(manager_uuid)
        self._lock_fd = -1
        self._node: Any = None
        self._listener: Any = None
        self._own_bell: Any = None
        self._attached: dict[WorkerKey, _Attached] = {}
        # A slot may have two lives for a moment; the ring is the same.
        self._by_ring: dict[int, list[tuple[_Attached, ServiceName, Any]]] = {}
        self._fd = -1
        self._thread: threading.Thread | None = None
        self._on_loop: OnLoop | None = None
        self._changing = threading.Lock()
        self._sweeper = Sweeper(self._prefix)
        self._is_closing = False

    def open(self, on_event: Callable[[IpcEvent], None], on_loop: OnLoop | None = None) -> None:
        self._lock_fd = names.open_root(self._root)
        self._crowd.open()
        # We hold the lock: whatever is here belongs to a life that has ended.
        services.remove_leftovers(self._root, self._prefix)
        services.allow_many_descriptors()
        self._on_event = on_event if on_loop is None else on_loop.note
        self._memory_root = services.open_memory_root(self._root, self._prefix)
        self._node = services.make_node(str(self._memory_root), self._prefix)
        bell = services.agent_doorbell(self._node, names.agent_doorbell_name(self._prefix)).create()
        self._listener, self._fd = services.listen(bell, str(self._memory_root))
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
        # Outside the lock: it takes milliseconds, and the others go on being served. One at a
        # time: with 256 to come, all threads of a pool would stand between the loop and the GIL.
        with self._changing:
            attached = _Attached(self._node, self._prefix, Customer(worker, directory))
        with self._lock:
            self._admit(attached.customer)
            self._attached[worker] = attached
            for service, server in attached.servers:
                heard_by = self._by_ring.setdefault(names.ring_of(worker, service), [])
                heard_by.append((attached, service, server))
        return WorkerEndpoint(
            transport="iceoryx2",
            worker=worker,
            root=str(self._root),
            directory=str(directory),
            memory_root=str(self._memory_root),
            prefix=self._prefix,
        )

    def detach(self, worker: WorkerKey) -> None:
        with self._lock:
            attached = self._attached.pop(worker, None)
            if attached is None:
                return
            for service, server in attached.servers:
                self._by_ring[names.ring_of(worker, service)].remove((attached, service, server))
            self._discharge(worker)
            is_left_over = services.count_nodes(self._memory_root) > len(self._attached) + 1
        with self._changing:
            attached.close()
        shutil.rmtree(names.worker_directory(self._root, worker), ignore_errors=True)
        if is_left_over and not self._is_closing:
            # It was killed. Cleaning up after a dead node takes 20-60 ms with the GIL held, so
            # that is done by a process of its own.
            self._sweeper.sweep_soon(self._memory_root)

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
        self._crowd.close()
        os.close(self._lock_fd)

    def _stop_hearing(self) -> None:
        if self._on_loop is not None:
            loop, self._on_loop = self._on_loop.loop, None
            is_over = threading.Event()
            loop.call_soon_threadsafe(loop.remove_reader, self._fd)
            loop.call_soon_threadsafe(is_over.set)
            is_over.wait(_JOIN_S)
        if self._thread is not None:
            self._own_bell.notify_with_custom_event_id(iceoryx2.EventId.new(names.STOP_RING))
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
                for attached, service, server in self._by_ring.get(ring.id.as_value, ()):
                    self._look_at(attached, service, server)

    def _look_at(self, attached: _Attached, service: ServiceName, server: Any) -> None:
        try:
            while (active := server.receive()) is not None:
                data = services.read(active)
                self._heard(attached.customer, service, data, _Line(active, attached.bell))
        except services.ReceiveFailed as error:
            worker = attached.customer.key.local_id
            log.warning("ipc.not_received", worker=worker, service=service, error=str(error))
