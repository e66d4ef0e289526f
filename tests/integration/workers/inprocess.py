"""The whole HTTP application on an event loop of its own, called from synchronous tests.

Requests pass the real ASGI handler, middleware and pool; only the socket is missing. The test's
own thread keeps using the ORM on its own connection, as another process would.
"""

import asyncio
import json
import threading
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

import httpx2
from django.core.asgi import get_asgi_application
from django.db import connection, connections
from psycopg.conninfo import make_conninfo

from core.pg import close_pool, open_pool
from tasks.dispatcher import close_dispatcher

T = TypeVar("T")


def served_database() -> str:
    settings = connection.settings_dict
    return make_conninfo(
        host=settings["HOST"],
        port=settings["PORT"],
        user=settings["USER"],
        password=settings["PASSWORD"],
        dbname=settings["NAME"],
    )


class Site:
    """One coordinator process, reduced to its loop."""

    def __init__(self, database: str | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="site", daemon=True)
        self._thread.start()
        self._client = self.run(self._open(database or served_database()))

    def close(self) -> None:
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)

    def worker(self, token: str, **headers: str) -> "WorkerSide":
        return WorkerSide(self, token, headers)

    def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        return self.run(self._client.request(method, path, **options))

    def gather(self, calls: Iterable[tuple[str, str, dict[str, Any]]]) -> list[httpx2.Response]:
        """All at once, on the one loop."""

        async def all_of_them() -> list[httpx2.Response]:
            requests = (self._client.request(m, path, **options) for m, path, options in calls)
            return await asyncio.gather(*requests)

        return self.run(all_of_them())

    async def abandon(self, method: str, path: str, *, after_s: float, **options: Any) -> None:
        """A caller that hangs up in the middle. Raises TimeoutError when it did."""
        async with asyncio.timeout(after_s):
            await self._client.request(method, path, **options)

    async def _open(self, dsn: str) -> httpx2.AsyncClient:
        await open_pool(dsn)
        transport = httpx2.ASGITransport(app=get_asgi_application())
        return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    async def _close(self) -> None:
        await self._client.aclose()
        await close_dispatcher()
        await close_pool()
        await asyncio.to_thread(connections.close_all)


class WorkerSide:
    """A worker's token and the calls it is good for."""

    def __init__(self, site: Site, token: str, headers: dict[str, str]) -> None:
        self.site = site
        self.headers = {"Authorization": f"Bearer {token}", **headers}

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        options: dict[str, Any] = {"headers": {**self.headers, **headers}}
        if body is not None:
            options["content"] = json.dumps(body)
            options["headers"]["Content-Type"] = "application/json"
        return self.site.request(method, path, **options)

    def fetch(self) -> Any:
        response = self.call("GET", "/workers/tasks")
        assert response.status_code == 200, response.text
        return response.json()

    def report(self, attempt_id: int, op: Any, **headers: str) -> httpx2.Response:
        return self.call("POST", "/workers/tasks", {"id": attempt_id, "op": op}, **headers)

    def commit(self, attempt_id: int, status: int = 0, msg: str | None = None) -> httpx2.Response:
        return self.report(attempt_id, {"Commit": {"exit_status": status, "msg": msg}})

    def beat(self, body: Any = None) -> httpx2.Response:
        return self.call("POST", "/workers/heartbeat", body)
