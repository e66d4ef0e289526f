"""Frames on a worker's Unix socket: length, lane, request id, then the message.

The lane is the service a request or its answer belongs to, or the topic. Pure; used by unix_server
and unix_client, which read and write the bytes.
"""

import struct
from collections.abc import Iterator
from typing import Final

from nodeagent.ipc.server import ServiceName

_HEADER: Final = struct.Struct(">IB")
_LANES: Final[tuple[ServiceName, ...]] = ("fetch", "report", "heartbeat")
TOPIC: Final = len(_LANES)
# Larger payloads go through a file; the name of one is short.
MAX_FRAME_BYTES: Final = (1 << 20) + 1024


class FramingLost(Exception):
    """The peer does not speak frames; nothing after this can be trusted."""


def frame(lane: int, data: bytes) -> bytes:
    """One message as it goes out."""
    return _HEADER.pack(len(data), lane) + data


def lane_of(service: ServiceName) -> int:
    return _LANES.index(service)


def service_of(lane: int) -> ServiceName:
    """Raises FramingLost."""
    if lane >= len(_LANES):
        raise FramingLost(f"no service has the number {lane}")
    return _LANES[lane]


class FrameReader:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Lane and message of every frame that is complete now. Raises FramingLost."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _HEADER.size:
            size, lane = _HEADER.unpack_from(buffer, start)
            if size > MAX_FRAME_BYTES or lane > TOPIC:
                raise FramingLost(f"a frame of {size} bytes on lane {lane}")
            end = start + _HEADER.size + size
            if len(buffer) < end:
                break
            body = bytes(buffer[start + _HEADER.size : end])
            start = end
            yield lane, body
        del buffer[:start]
