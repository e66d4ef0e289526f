"""Readiness questions to a starting child: short, without libraries, never raising."""

import http.client
import socket
from pathlib import Path

from mitosis_stack.ports import LOOPBACK


def http_status(port: int, path: str, timeout_s: float = 3.0) -> int | None:
    """The status of GET on a loopback port, or None when nobody answers."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def valkey_answers(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1.0)
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
    except OSError:
        return False
