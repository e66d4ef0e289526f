"""One signed POST to a checked address, with a deadline for all of it.

Standard library: it connects to the IP that was checked, shows the certificate's name of the URL,
follows no redirect, reads no more than a line of the answer and honours no proxy variables.
"""

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from notifications.targets import Target, TargetRefused, resolve

MAX_SHOWN_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a try; `status` None: no answer, and `error` says why."""

    status: int | None
    error: str = ""

    @property
    def is_delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class _Pinned(http.client.HTTPConnection):
    """Connects to the address it is given, whatever the name resolves to by now."""

    def __init__(self, target: Target, address: str, timeout_s: float) -> None:
        super().__init__(target.host, target.port, timeout=timeout_s)
        self._target = target
        self._address = address
        self._timeout_s = timeout_s

    @override
    def connect(self) -> None:
        plain = socket.create_connection((self._address, self._target.port), self._timeout_s)
        self.sock = plain
        if self._target.scheme == "https":
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(plain, server_hostname=self._target.host)


def post(target: Target, *, body: bytes, headers: Mapping[str, str], limit_s: float) -> Answer:
    """Send it. Every failure of the other side is an Answer."""
    try:
        address = resolve(target)
    except (TargetRefused, OSError) as error:
        return Answer(None, _shown(error))
    connection = _Pinned(target, address, limit_s)
    # The socket's own timeout counts from byte to byte: who drips would hold us for ever.
    watchdog = threading.Timer(limit_s, _cut, [connection])
    watchdog.start()
    try:
        connection.request("POST", target.path, body, dict(headers))
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        return Answer(None, _shown(error))
    else:
        is_success = 200 <= answer.status < 300
        return Answer(answer.status, "" if is_success else f"the receiver answered {answer.status}")
    finally:
        watchdog.cancel()
        connection.close()


def _cut(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        try:
            connection.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has just ended by itself


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_SHOWN_CHARS]
