"""One HTTP request to the whole application on a loop, without a server; streams are cut off."""

import asyncio
import json
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from django.core.asgi import get_asgi_application


@dataclass(frozen=True)
class Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: str

    def __str__(self) -> str:
        return f"{self.status} {self.body[:200]}"

    @property
    def code(self) -> str:
        """The error code of a problem body, or nothing."""
        try:
            read = json.loads(self.body)
        except ValueError:
            return ""
        return str(read.get("code", "")) if isinstance(read, dict) else ""


class AsgiCaller:
    def __init__(self) -> None:
        self._app = get_asgi_application()

    async def ask(self, method: str, target: str, bearer: str | None, body: Any) -> Answer:
        path, _, query = target.partition("?")
        data = b"" if body is None else json.dumps(body).encode()
        headers = [(b"host", b"127.0.0.1"), (b"content-length", str(len(data)).encode())]
        if body is not None:
            headers.append((b"content-type", b"application/json"))
        if bearer is not None:
            headers.append((b"authorization", bearer.encode()))
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "scheme": "http", "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "root_path": "", "headers": headers,
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        return await asyncio.wait_for(_Exchange(data).run(self._app, scope), 60)


class _Exchange:
    def __init__(self, data: bytes) -> None:
        self._requests: list[MutableMapping[str, Any]] = [
            {"type": "http.request", "body": data, "more_body": False}
        ]
        self._gone = asyncio.Event()
        self._start: MutableMapping[str, Any] = {}
        self._chunks: list[bytes] = []

    async def run(self, app: Any, scope: dict[str, Any]) -> Answer:
        await app(scope, self._receive, self._send)
        headers = sorted((n.decode().lower(), v.decode()) for n, v in self._start["headers"])
        body = b"".join(self._chunks).decode("utf-8", "replace")
        return Answer(self._start["status"], tuple(headers), body)

    async def _receive(self) -> MutableMapping[str, Any]:
        if self._requests:
            return self._requests.pop()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        else:
            self._chunks.append(message.get("body", b""))
        # The head of a stream is enough: the client hangs up.
        if self._is_stream() or message["type"] == "http.response.body":
            self._gone.set()

    def _is_stream(self) -> bool:
        return any(value.startswith(b"text/event-stream") for _, value in self._start["headers"])
