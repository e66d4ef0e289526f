"""The worker's end of the channel to its launcher: frames out, frames in, on the event loop.

Plain socket calls and one reader callback: a stream pair of asyncio costs a task about 100 us
more. Called by launcher. Frames as in launcher_main.
"""

import asyncio
import json
import socket
import struct
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

_HEADER = struct.Struct(">I")
_READ_BYTES = 1 << 16


class Message(msgspec.Struct, frozen=True):
    """What a launcher says; `event` decides which members mean something."""

    event: str
    pid: int = 0
    reason: str = ""
    status: int = 0
    max_rss_kib: int = 0
    cpu_s: float = 0.0
    leftovers: int = 0
    survivors: int = 0


class ChannelClosed(Exception):
    """The launcher is gone, or is about to be; never leaves nodeagent.worker.launcher."""


_DECODER = msgspec.json.Decoder(Message)


class Channel:
    """One launcher's socket. Must be made and used on one running event loop."""

    def __init__(self, ours: socket.socket) -> None:
        ours.setblocking(False)
        self._socket = ours
        self._loop = asyncio.get_running_loop()
        self._incoming = bytearray()
        self._messages: deque[Message] = deque()
        self.is_over = False
        self._waiting: asyncio.Future[None] | None = None
        self._loop.add_reader(ours.fileno(), self._on_readable)

    async def send(self, request: Mapping[str, object], descriptors: Sequence[int] = ()) -> None:
        """Raises ChannelClosed. Descriptors go with the first byte and stay ours to close."""
        try:
            body = msgspec.json.encode(request)
        except UnicodeEncodeError:
            # Lone surrogates stand for undecodable bytes of the environment, and only the
            # standard library's JSON carries them.
            body = json.dumps(request).encode()
        frame = _HEADER.pack(len(body)) + body
        try:
            sent = self._send_first(frame, descriptors)
            if sent < len(frame):
                await self._loop.sock_sendall(self._socket, frame[sent:])
        except OSError as error:
            raise ChannelClosed from error

    async def receive(self) -> Message:
        """The next frame. Raises ChannelClosed."""
        while not self._messages:
            if self.is_over:
                raise ChannelClosed
            self._waiting = self._loop.create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        return self._messages.popleft()

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
        self._finish()

    def _send_first(self, frame: bytes, descriptors: Sequence[int]) -> int:
        try:
            if descriptors:
                return socket.send_fds(self._socket, [frame], list(descriptors))
            return self._socket.send(frame)
        except BlockingIOError as error:
            # One command at a time: nothing but a launcher that does not read fills the buffer.
            if descriptors:
                raise ChannelClosed from error
            return 0

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._socket.fileno())
            self._finish()
            return
        self._incoming += data
        while len(self._incoming) >= _HEADER.size:
            (size,) = _HEADER.unpack_from(self._incoming)
            end = _HEADER.size + size
            if len(self._incoming) < end:
                break
            self._messages.append(_DECODER.decode(self._incoming[_HEADER.size : end]))
            del self._incoming[:end]
        # Nobody acts on a start; it is read together with the end.
        if self._messages and self._messages[-1].event != "started":
            self._wake()

    def _finish(self) -> None:
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
