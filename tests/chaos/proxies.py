"""Proxies on a loop of their own thread, driven by the synchronous nemesis.

The witness reads what coordinators say to agents: which reports they took as the end of a task.
That is evidence from the wire, kept outside the system (invariant I3).
"""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from tests.chaos.ws_proxy import Direction, WsProxy

T = TypeVar("T")


class AcceptedEnds:
    """Attempts whose report was answered `ok` and ended their task, as often as that was said."""

    def __init__(self) -> None:
        self.attempt_ids: list[int] = []

    def __call__(self, direction: Direction, _connection: int, payload: bytes) -> None:
        if direction != "down" or b'"reports_accepted"' not in payload:
            return
        for line in json.loads(payload)["results"]:
            if line["answer"] == "ok" and line.get("action") == "end":
                self.attempt_ids.append(int(line["task_id"]))


class ProxyHouse:
    """All proxies of a run."""

    def __init__(self) -> None:
        self.accepted = AcceptedEnds()
        self.proxies: dict[str, WsProxy] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def open(self, name: str, target: int, kind: type[WsProxy] = WsProxy) -> int:
        """The port of a new proxy in front of `target`."""
        proxy = kind(target, self.accepted)
        asyncio.run_coroutine_threadsafe(proxy.start(), self._loop).result(30)
        self.proxies[name] = proxy
        return proxy.port

    def on(self, name: str, action: Callable[[WsProxy], T]) -> T:
        """Do something to a proxy on its own loop."""

        async def act() -> T:
            return action(self.proxies[name])

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(30)

    def heal(self) -> None:
        for name in self.proxies:
            self.on(name, WsProxy.heal)

    def happened(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for name in self.proxies:
            total += self.on(name, lambda proxy: Counter(proxy.happened))
        return total

    def close(self) -> None:
        for proxy in self.proxies.values():
            asyncio.run_coroutine_threadsafe(proxy.stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()
