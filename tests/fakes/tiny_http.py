"""A small threaded HTTP/1.1 server for fakes, with faults that can be planted per request.

Standard library only. A fake gives it one function from request to answer; tests plant faults to
make the wire misbehave and `stop`/`start` it on the same port to play a restart.
"""

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Request:
    """One request, read completely."""

    method: str
    path: str  # percent-decoded, without the query
    query: dict[str, list[str]]
    headers: dict[str, str]  # lower-case names
    body: bytes


@dataclass(frozen=True)
class Answer:
    """Status, body and headers to send."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


class Trouble(Enum):
    """Ways in which the wire fails."""

    RESET = "reset before the request is looked at"
    LOST_ANSWER = "request applied, connection reset instead of the answer"


@dataclass
class Fault:
    """What to do to the next `times` requests whose method and path match."""

    method: str
    path: str  # a prefix
    action: Trouble | Answer
    times: int = 1
    containing: bytes = b""  # in the request's body

    def matches(self, request: Request) -> bool:
        return (
            self.times > 0
            and request.method == self.method
            and request.path.startswith(self.path)
            and self.containing in request.body
        )


class TinyHttp:
    """The server. `handle` runs in one thread per connection."""

    def __init__(self, handle: Callable[[Request], Answer]) -> None:
        self._handle = handle
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen on loopback; again on the same port after a stop."""
        self._server = _Server(("127.0.0.1", self.port), _handler_class(self))
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop listening and cut every connection, as a crash would."""
        if self._server is None:
            return
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            for connection in self._connections:
                _reset(connection)
            self._connections.clear()
        if self._thread is not None:
            self._thread.join()
        self._server = None

    def answer(self, request: Request) -> Answer | None:
        """The answer to send, or None to cut the connection."""
        with self._lock:
            self.requests.append(request)
            fault = next((f for f in self.faults if f.matches(request)), None)
            if fault is not None:
                fault.times -= 1
        if fault is None:
            return self._handle(request)
        if isinstance(fault.action, Answer):
            return fault.action
        if fault.action is Trouble.LOST_ANSWER:
            self._handle(request)
        return None

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections cut by either side are part of the tests, not news."""


def _handler_class(owner: TinyHttp) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            owner.opened(self.connection)

        def finish(self) -> None:
            owner.closed(self.connection)
            super().finish()

        def do_GET(self) -> None:
            split = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", "0")))
            answer = owner.answer(
                Request(self.command, unquote(split.path), parse_qs(split.query), headers, body)
            )
            if answer is None:
                _reset(self.connection)
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - names the base class looks for

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    return Handler


def _reset(connection: socket.socket) -> None:
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)
        connection.close()
    except OSError:
        return
