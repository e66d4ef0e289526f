"""A socket without a network: the real routing and session, called as a server calls them."""

import asyncio
import json
from typing import Any

from channels.routing import URLRouter

from websocket.auth import Message
from websocket.routing import websocket_urlpatterns

ROUTER = URLRouter(websocket_urlpatterns)


class FakeServer:
    """The server's side of one connection; `hold` makes the peer stop reading."""

    def __init__(
        self, headers: dict[str, str], *, denial: bool = True, path: str = "/ws/managers"
    ) -> None:
        self._in: asyncio.Queue[Message] = asyncio.Queue()
        self.out: asyncio.Queue[Message] = asyncio.Queue()
        self.readable = asyncio.Event()
        self.readable.set()
        self._scope = {
            "type": "websocket",
            "path": path,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "extensions": {"websocket.http.response": {}} if denial else {},
        }
        self._in.put_nowait({"type": "websocket.connect"})
        self.task = asyncio.create_task(ROUTER(self._scope, self._in.get, self._send))

    async def _send(self, message: Message) -> None:
        await self.readable.wait()
        self.out.put_nowait(message)

    def give(self, **message: Any) -> None:
        self.give_text(json.dumps(message))

    def give_text(self, text: str) -> None:
        self._in.put_nowait({"type": "websocket.receive", "text": text})

    def leave(self) -> None:
        self._in.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def next(self, within_s: float = 5) -> Message:
        return await asyncio.wait_for(self.out.get(), within_s)

    async def answer(self, within_s: float = 5) -> dict[str, Any]:
        message = await self.next(within_s)
        assert message["type"] == "websocket.send", message
        frame: dict[str, Any] = json.loads(message["text"])
        return frame

    async def closed(self, within_s: float = 10) -> tuple[int, str]:
        """Skips what was said before the end."""
        async with asyncio.timeout(within_s):
            while (message := await self.out.get())["type"] != "websocket.close":
                pass
        await asyncio.wait_for(self.task, within_s)
        return message["code"], message.get("reason", "")
