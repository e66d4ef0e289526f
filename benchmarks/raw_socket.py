"""A WebSocket client that costs next to nothing, for counting frames.

A masking key of zeros leaves the payload as it is, so a frame is built once and written many
times; answers are counted by their headers. For frames below 126 bytes that wait for an answer.
"""

import asyncio
import base64
import os
import time
from collections import deque
from urllib.parse import urlsplit

TEXT = 0x1


class RawSocket:
    """One connection, one frame, as often and as fast as it is answered."""

    def __init__(self, url: str, token: str) -> None:
        self._address = urlsplit(url)
        self._token = token
        self._buffer = bytearray()

    async def pump(self, payload: bytes, *, count: int, window: int) -> list[float]:
        """Send `count` frames, `window` unanswered at most; the seconds each answer took."""
        if len(payload) > 125:
            raise ValueError("the frame is too long for a short header")
        frame = bytes((0x80 | TEXT, 0x80 | len(payload))) + bytes(4) + payload
        reader, writer = await self._open()
        sent = min(window, count)
        since = deque([time.monotonic()] * sent)
        writer.write(frame * sent)
        took: list[float] = []
        while len(took) < count:
            answered = await self._read(reader)
            now = time.monotonic()
            took += [now - since.popleft() for _ in range(answered)]
            more = min(answered, count - sent)
            sent += more
            since.extend([now] * more)
            writer.write(frame * more)
        writer.close()
        await writer.wait_closed()
        return took

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            "GET /ws/managers HTTP/1.1",
            f"Host: {self._address.netloc}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            f"Authorization: Bearer {self._token}",
        )
        writer.write("\r\n".join([*lines, "", ""]).encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in answer.splitlines()[0]:
            raise ConnectionError(answer.decode("latin-1"))
        return reader, writer

    async def _read(self, reader: asyncio.StreamReader) -> int:
        """How many text frames the next bytes complete."""
        data = await reader.read(1 << 16)
        if not data:
            raise ConnectionError("the server ended the connection")
        self._buffer += data
        found, at = 0, 0
        while (end := self._end_of_frame(at)) is not None:
            found += self._buffer[at] & 0xF == TEXT
            at = end
        del self._buffer[:at]
        return found

    def _end_of_frame(self, at: int) -> int | None:
        if len(self._buffer) < at + 4:
            return None
        size, header = self._buffer[at + 1] & 0x7F, 2
        if size == 126:
            size, header = int.from_bytes(self._buffer[at + 2 : at + 4], "big"), 4
        end = at + header + size
        return end if end <= len(self._buffer) else None
