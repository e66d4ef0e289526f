"""The IPC server over Unix sockets: one socket pair per worker, its end inherited over the fork.

For hosts without an iceoryx2 wheel (arm64, old glibc) or without shared memory. A worker cannot
reach any socket but its own, so the socket is its identity. Built by the agent's shell.
"""

import os
import selectors
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
from typing_extensions import override

from mitosis_protocol.ipc import Control, WorkerSettings
from nodeagent.ipc import framing
from nodeagent.ipc.customer import Customer, Undeliverable
from nodeagent.ipc.desk import Desk
from nodeagent.ipc.names import open_root, worker_directory
from nodeagent.ipc.server import IpcEvent, OnLoop, WorkerEndpoint, WorkerKey

log = structlog.stdlib.get_logger(__name__)

_READ_BYTES: Final = 1 << 16
# A worker that has left this much unread is stuck; it is cut off, and its exit tells the rest.
_MAX_UNREAD_BYTES: Final = 64 << 20
_JOIN_S: Final = 10.0


class _Connection:
    """One worker's socket and what could not be written to it yet."""

    def __init__(self, customer: Customer) -> None:
        self.customer = customer
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.frames = framing.FrameReader()
        self.unsent = bytearray()
        self.is_cut = False

    def send(self, lane: int, data: bytes) -> None:
        """Raises Undeliverable. The lock is held."""
        if self.is_cut:
            raise Undeliverable("the connection is closed")
        out = framing.frame(lane, data)
        if self.unsent:
            self.unsent += out
        else:
            self.unsent += out[self._write(out) :]
        if len(self.unsent) > _MAX_UNREAD_BYTES:
            self.is_cut = True
            raise Undeliverable("the worker does not read")

    def flush(self) -> None:
        if self.unsent and not self.is_cut:
            del self.unsent[: self._write(self.unsent)]

    def close(self) -> None:
        self.is_cut = True
        self.ours.close()
        self.theirs.close()

    def _write(self, out: bytes | bytearray) -> int:
        try:
            return self.ours.send(out)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.is_cut = True
            raise Undeliverable(str(error)) from error


class _Line:
    """The way back for one request."""

    __slots__ = ("_connection", "_lane", "_server")

    def __init__(self, server: "UnixServer", connection: _Connection, lane: int) -> None:
        self._server = server
        self._connection = connection
        self._lane = lane

    def send(self, data: bytes, *, is_urgent: bool = True) -> None:
        del is_urgent  # who reads a socket is woken by it
        self._connection.send(self._lane, data)
        self._server.watch_writes(self._connection)


class UnixServer(Desk):
    """Serves all workers from one thread; answers may come from any."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._root = root
        self._lock_fd = -1
        self._connections: dict[WorkerKey, _Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = -1, -1
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def open(self, on_event: Callable[[IpcEvent], None], on_loop: OnLoop | None = None) -> None:
        del on_loop  # a socket per worker, read by the thread
        self._lock_fd = open_root(self._root)
        self._crowd.open()
        self._on_event = on_event
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="ipc", daemon=True)
        self._thread.start()

    def attach(self, worker: WorkerKey) -> WorkerEndpoint:
        directory = worker_directory(self._root, worker)
        directory.mkdir(mode=0o700, parents=True)
        with self._lock:
            connection = _Connection(Customer(worker, directory))
            self._admit(connection.customer)
            self._connections[worker] = connection
            self._selector.register(connection.ours, selectors.EVENT_READ, connection)
        return WorkerEndpoint(
            transport="unix",
            worker=worker,
            root=str(self._root),
            directory=str(directory),
            fd=connection.theirs.fileno(),
        )

    def detach(self, worker: WorkerKey) -> None:
        with self._lock:
            connection = self._connections.pop(worker, None)
            if connection is None:
                return
            self._discharge(worker)
            self._forget(connection)
            connection.close()
        shutil.rmtree(worker_directory(self._root, worker), ignore_errors=True)

    def publish(self, message: Control | WorkerSettings) -> None:
        with self._lock:
            for customer in self._audience(message):
                connection = self._connections[customer.key]
                try:
                    connection.send(framing.TOPIC, customer.payloads.pack(message))
                except (Undeliverable, OSError):
                    self._counts["undelivered"] += 1
                else:
                    self._counts["published"] += 1
                    self.watch_writes(connection)

    def close(self) -> None:
        self._is_closing = True
        if self._thread is None:
            return
        os.write(self._wake_write, b"x")
        self._thread.join(_JOIN_S)
        for worker in list(self._connections):
            self.detach(worker)
        self._selector.close()
        self._crowd.close()
        for fd in (self._wake_read, self._wake_write, self._lock_fd):
            os.close(fd)
        self._thread = None

    def watch_writes(self, connection: _Connection) -> None:
        """Let the IPC thread write what the socket did not take. The lock is held."""
        if connection.unsent and connection.customer.key in self._connections:
            events = selectors.EVENT_READ | selectors.EVENT_WRITE
            self._selector.modify(connection.ours, events, connection)

    def _serve(self) -> None:
        while not self._is_closing:
            for key, events in self._selector.select():
                if isinstance(key.data, _Connection):
                    self._handle(key.data, events)
                else:
                    os.read(self._wake_read, _READ_BYTES)

    def _handle(self, connection: _Connection, events: int) -> None:
        with self._lock:
            if connection.customer.key not in self._connections:
                return  # detached between select and here
            try:
                if events & selectors.EVENT_WRITE:
                    self._write(connection)
                if events & selectors.EVENT_READ:
                    self._read(connection)
            except (Undeliverable, framing.FramingLost) as error:
                key = connection.customer.key
                log.warning("ipc.cut_off", worker=key.local_id, error=str(error))
                connection.is_cut = True
                self._forget(connection)

    def _write(self, connection: _Connection) -> None:
        connection.flush()
        if not connection.unsent:
            self._selector.modify(connection.ours, selectors.EVENT_READ, connection)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.ours.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise Undeliverable(str(error)) from error
        if not data:
            # Its exit is reported by the pool; nothing more will be heard here.
            connection.is_cut = True
            self._forget(connection)
            return
        for lane, body in connection.frames.feed(data):
            service = framing.service_of(lane)
            self._heard(connection.customer, service, body, _Line(self, connection, lane))

    def _forget(self, connection: _Connection) -> None:
        try:
            self._selector.unregister(connection.ours)
        except (KeyError, ValueError):
            return  # was cut off before

    @override
    def _became_ready(self, customer: Customer) -> None:
        # It has its end; with ours closed, nobody else can speak on it.
        self._connections[customer.key].theirs.close()
