"""A worker's IPC over the socket it inherited. Made by open_client; see client and unix_server."""

import socket
from collections.abc import Callable
from typing import Final

from typing_extensions import override

from nodeagent.errors import WorkerRemoved
from nodeagent.ipc import framing
from nodeagent.ipc.client import Client, Published
from nodeagent.ipc.server import ServiceName, WorkerEndpoint

_READ_BYTES: Final = 1 << 16


class UnixClient(Client):
    """Frames on one socket; its end is the end of the agent."""

    def __init__(self, endpoint: WorkerEndpoint, on_published: Callable[[Published], None]) -> None:
        super().__init__(endpoint, on_published)
        if endpoint.fd is None:
            raise WorkerRemoved("no socket was inherited")
        self._socket = socket.socket(fileno=endpoint.fd)
        self._socket.set_inheritable(False)
        self._socket.setblocking(False)
        self._frames = framing.FrameReader()
        self._unsent = bytearray()
        self._loop.add_reader(self._socket, self._poll)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    @override
    def _post(self, service: ServiceName, request_id: int, data: bytes) -> None:
        out = framing.frame(framing.lane_of(service), data)
        if self._unsent:
            self._unsent += out
            return
        sent = self._write(out)
        if sent < len(out):
            self._unsent += out[sent:]
            self._loop.add_writer(self._socket, self._flush)

    @override
    def _poll(self) -> bool:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            return self._end(str(error))
        if not data:
            return self._end("the agent has closed the channel")
        try:
            for lane, body in self._frames.feed(data):
                if lane == framing.TOPIC:
                    self._published(body)
                else:
                    self._answered(body)
        except framing.FramingLost as error:
            return self._end(str(error))
        return True

    def _flush(self) -> None:
        del self._unsent[: self._write(self._unsent)]
        if not self._unsent:
            self._loop.remove_writer(self._socket)

    def _write(self, out: bytes | bytearray) -> int:
        try:
            return self._socket.send(out)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._end(str(error))
            return len(out)

    def _end(self, why: str) -> bool:
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._lost(why)
        return True
