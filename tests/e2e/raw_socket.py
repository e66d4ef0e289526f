"""A WebSocket by hand, for what no client library would send: broken frames, half handshakes."""

import asyncio
import base64
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

TEXT, BINARY, CONTINUATION, CLOSE, PING = 1, 2, 0, 8, 9
_MASK = b"\x01\x02\x03\x04"


def request_head(url: str, token: str, *more: str) -> bytes:
    """Everything of an upgrade but the empty line that ends it."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = (
        "GET /ws/managers HTTP/1.1", f"Host: {urlsplit(url).netloc}", "Upgrade: websocket",
        "Connection: Upgrade", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13",
        f"Authorization: Bearer {token}", *more,
    )  # fmt: skip
    return "".join(f"{line}\r\n" for line in lines).encode()


def frame(opcode: int, payload: bytes = b"", *, head: int = 0x80, is_masked: bool = True) -> bytes:
    """`head`: the bits above the opcode; 0x80 is the last fragment, 0x70 is reserved."""
    mask = 0x80 if is_masked else 0
    size = len(payload)
    if size < 126:
        length = bytes([mask | size])
    elif size < 65_536:
        length = bytes([mask | 126]) + struct.pack(">H", size)
    else:
        length = bytes([mask | 127]) + struct.pack(">Q", size)
    if not is_masked:
        return bytes([head | opcode]) + length + payload
    repeated = _MASK * (size // 4 + 1)
    body = (
        int.from_bytes(payload, "big") ^ int.from_bytes(repeated[:size], "big")
    ).to_bytes(size, "big")  # fmt: skip
    return bytes([head | opcode]) + length + _MASK + body


def announced(size: int) -> bytes:
    """The head of a text frame that says it is that long, and nothing of its body."""
    return bytes([0x80 | TEXT, 0x80 | 127]) + struct.pack(">Q", size) + _MASK


class RawSocket:
    """An open connection of a manager."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes
    ) -> None:
        self.answer = answer
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def next_frame(self, within_s: float = 20.0) -> tuple[int, bytes]:
        """Opcode and payload of the next whole frame. Raises IncompleteReadError at the end."""
        async with asyncio.timeout(within_s):
            head = await self.reader.readexactly(2)
            size = head[1] & 0x7F
            if size >= 126:
                size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8), "big")
            return head[0] & 0x0F, await self.reader.readexactly(size)

    async def close_code(self, within_s: float = 20.0) -> int:
        """With which the other side ended it; 1006 if without a word."""
        try:
            while True:
                opcode, payload = await self.next_frame(within_s)
                if opcode == CLOSE:
                    return int.from_bytes(payload[:2], "big")
        except (asyncio.IncompleteReadError, ConnectionError):
            return 1006


@asynccontextmanager
async def raw_socket(url: str, token: str, *more: str) -> AsyncIterator[RawSocket]:
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(request_head(url, token, *more) + b"\r\n")
        async with asyncio.timeout(20):
            answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101"), answer
        yield RawSocket(reader, writer, answer)
    finally:
        writer.transport.abort()
