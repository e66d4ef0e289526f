"""Frames between the agent and its fork server: 4-byte length, then MessagePack.

Descriptors travel with the first byte of a frame. Used by fork_server and process.
"""

import socket
import struct
from collections.abc import Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec

from nodeagent.worker.passed_descriptors import receive

_HEADER = struct.Struct(">I")
_READ_BYTES = 1 << 16
_MAX_DESCRIPTORS = 16


class Begin(msgspec.Struct, frozen=True, tag=True):
    """First word of the agent: the worker's main function, and our cgroups."""

    target: str  # "module:function"
    subtrees: tuple[str, ...] = ()


class Spawn(msgspec.Struct, frozen=True, tag=True):
    """Fork a worker and give it the so many descriptors that come along."""

    number: int
    start: bytes
    descriptors: int = 0


ToServer: TypeAlias = Begin | Spawn


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Modules are imported."""


class Spawned(msgspec.Struct, frozen=True, tag=True):
    """A pidfd comes along: made while the worker could not have been reaped."""

    number: int
    pid: int
    descriptors: int = 1


class NotSpawned(msgspec.Struct, frozen=True, tag=True):
    number: int
    reason: str


class Exited(msgspec.Struct, frozen=True, tag=True):
    """Reaped, and nothing that it started is left."""

    pid: int
    status: int
    max_rss_kib: int
    cpu_s: float


FromServer: TypeAlias = Ready | Spawned | NotSpawned | Exited

M = TypeVar("M", ToServer, FromServer)


class Reader(Generic[M]):
    """Puts frames and descriptors together again."""

    def __init__(self, channel: socket.socket, decoder: "msgspec.msgpack.Decoder[M]") -> None:
        self._channel = channel
        self._decoder: msgspec.msgpack.Decoder[M] = decoder
        self._incoming = bytearray()
        self._descriptors: list[int] = []

    def read(self) -> list[tuple[M, list[int]]] | None:
        """Whole frames that arrived; None at the end of the channel."""
        data, descriptors = receive(self._channel, _READ_BYTES, _MAX_DESCRIPTORS)
        if not data:
            return None
        self._descriptors += descriptors
        self._incoming += data
        frames: list[tuple[M, list[int]]] = []
        while len(self._incoming) >= _HEADER.size:
            (size,) = _HEADER.unpack_from(self._incoming)
            end = _HEADER.size + size
            if len(self._incoming) < end:
                break
            message = self._decoder.decode(self._incoming[_HEADER.size : end])
            del self._incoming[:end]
            count = getattr(message, "descriptors", 0)
            frames.append((message, self._descriptors[:count]))
            del self._descriptors[:count]
        return frames


def frame(message: ToServer | FromServer) -> bytes:
    body = msgspec.msgpack.encode(message)
    return _HEADER.pack(len(body)) + body


def send_all(channel: socket.socket, data: bytes, descriptors: Sequence[int] = ()) -> None:
    """Blocks; for sockets in blocking mode."""
    rest = memoryview(data)
    if descriptors:
        rest = rest[socket.send_fds(channel, [data], list(descriptors)) :]
    if rest:
        channel.sendall(rest)
