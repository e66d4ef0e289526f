"""Receiving descriptors over a Unix socket, closed on exec from the very first moment.

`socket.recv_fds` ignores its flags in Python 3.11, so what it receives leaks into every program
started meanwhile. Used by launcher_main and the fork server's wire; the standard library only.
"""

import array
import socket

_ITEM = array.array("i").itemsize


def receive(channel: socket.socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """Up to `size` bytes, and the descriptors that came with them (at most `most` are taken)."""
    data, ancillary, _, _ = channel.recvmsg(
        size, socket.CMSG_SPACE(most * _ITEM), socket.MSG_CMSG_CLOEXEC
    )
    found = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(payload[: len(payload) - len(payload) % _ITEM])
    return data, list(found)
