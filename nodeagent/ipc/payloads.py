"""Messages between agent and worker as bytes: MessagePack, or a file when they are large.

Beyond MAX_INLINE_BYTES the message holds only the name of a file in the worker's own directory;
its reader removes it. No fsync: a payload lives no longer than the two processes. Used by desk and
by both clients.
"""

import os
import re
import stat
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from mitosis_protocol.ipc import (
    MAX_INLINE_BYTES,
    Control,
    FromWorker,
    IpcMessage,
    ToWorker,
    WorkerSettings,
)

# 0xc1 is the one byte that never begins a MessagePack value.
_IN_A_FILE: Final = b"\xc1"
_FILE_NAME: Final = re.compile(r"(?:agent|worker)-[0-9]{1,19}")
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_encoder = msgspec.msgpack.Encoder()
FROM_WORKER: Final[msgspec.msgpack.Decoder[FromWorker]] = msgspec.msgpack.Decoder(FromWorker)
TO_WORKER: Final[msgspec.msgpack.Decoder[ToWorker]] = msgspec.msgpack.Decoder(ToWorker)
PUBLISHED: Final[msgspec.msgpack.Decoder[Control | WorkerSettings]] = msgspec.msgpack.Decoder(
    Control | WorkerSettings
)

# What decoding bytes of a stranger, or of a peer that died while it wrote, may raise.
Unreadable: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OSError)


class Payloads:
    """Packs and unpacks the messages of one side of one worker's IPC."""

    def __init__(self, directory: Path, side: str) -> None:
        self._directory = directory
        self._side = side
        self._numbers = count(1)
        self.spilled = 0

    def pack(self, message: IpcMessage) -> bytes:
        """Bytes small enough to be sent as one message."""
        data = _encoder.encode(message)
        if len(data) <= MAX_INLINE_BYTES:
            return data
        name = f"{self._side}-{next(self._numbers)}"
        path = self._directory / name
        with os.fdopen(os.open(path, _NEW, 0o600), "wb") as file:
            file.write(data)
        self.spilled += 1
        return _IN_A_FILE + name.encode()

    def unpack(self, data: bytes) -> bytes:
        """The MessagePack of a message; removes its file. Raises what `Unreadable` names."""
        if data[:1] != _IN_A_FILE:
            return data
        name = data[1:].decode()
        if _FILE_NAME.fullmatch(name) is None or name.startswith(self._side):
            raise msgspec.DecodeError("not the name of a payload")
        path = self._directory / name
        fd = os.open(path, _READ)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise msgspec.DecodeError("a payload must be a regular file")
            body = file.read()
        path.unlink()
        return body
