"""A node manager as a test drives it: one socket, requests by id, everything else kept in order."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import psycopg
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.e2e.cluster import Cluster
from tests.integration.workers.live_user import LiveUser

Frame = dict[str, Any]


class Manager:
    """A registered manager and what its registration answered."""

    def __init__(self, user: LiveUser, *tags: str) -> None:
        answer = user.http.post("/managers", json={"tags": list(tags), "groups": []})
        assert answer.status_code == 201, answer.text
        self.user = user
        self.uuid: str = answer.json()["manager_uuid"]
        self.token: str = answer.json()["token"]

    @asynccontextmanager
    async def connected(self, url: str | None = None, **options: Any) -> AsyncIterator["Link"]:
        base = (url or self.user.cluster.url).replace("http", "ws", 1)
        headers = {"Authorization": f"Bearer {self.token}"}
        async with connect(
            f"{base}/ws/managers", additional_headers=headers, proxy=None, **options
        ) as socket:
            link = Link(self, socket)
            try:
                yield link
            finally:
                await link.stop()


class Link:
    """One connection. `request` waits for its own answer; pushes collect in `pushes`."""

    def __init__(self, manager: Manager, socket: ClientConnection) -> None:
        self.manager = manager
        self.socket = socket
        self.pushes: list[Frame] = []
        self.closed: tuple[int, str] | None = None
        self._next_id = 1
        self._waiting: dict[int, asyncio.Queue[Frame]] = {}
        self._news = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    async def stop(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def send(self, **message: Any) -> None:
        await self.socket.send(json.dumps(message))

    def ask(self) -> int:
        """A request id whose answers are kept for `answer`."""
        request_id, self._next_id = self._next_id, self._next_id + 1
        self._waiting[request_id] = asyncio.Queue()
        return request_id

    async def answer(self, request_id: int, within_s: float = 10) -> Frame:
        async with asyncio.timeout(within_s):
            return await self._waiting[request_id].get()

    async def request(self, kind: str, within_s: float = 10, **members: Any) -> Frame:
        request_id = self.ask()
        await self.send(type=kind, request_id=request_id, **members)
        return await self.answer(request_id, within_s)

    async def beat(self, state: str = "Idle", **members: Any) -> Frame:
        """Repeats what was refused for now, as agents do on a busy machine."""
        body = {"manager_uuid": self.manager.uuid, "state": state, "metrics": {}, **members}
        for _ in range(100):
            answer = await self.request("heartbeat", **body)
            if not answer.get("is_retryable"):
                break
            await asyncio.sleep(0.2)
        return answer

    async def hello(self, **members: Any) -> Frame:
        return await self.request("hello", process_id=str(uuid4()), **members)

    async def pushed(self, kind: str, within_s: float = 10) -> Frame:
        """The oldest unseen push of that type."""

        def found() -> Frame | None:
            return next((frame for frame in self.pushes if frame["type"] == kind), None)

        async with asyncio.timeout(within_s), self._news:
            await self._news.wait_for(found)
        frame = found()
        assert frame is not None
        self.pushes.remove(frame)
        return frame

    async def gone(self, within_s: float = 10) -> tuple[int, str]:
        """How the server closed us."""
        async with asyncio.timeout(within_s):
            await asyncio.shield(self._reader)
        assert self.closed is not None
        return self.closed

    async def _read(self) -> None:
        try:
            async for text in self.socket:
                frame = json.loads(text)
                waiting = self._waiting.get(frame.get("request_id"))
                if waiting is not None:
                    waiting.put_nowait(frame)
                    continue
                async with self._news:
                    self.pushes.append(frame)
                    self._news.notify_all()
        except ConnectionClosed:
            pass
        self.closed = (self.socket.close_code or 0, self.socket.close_reason or "")


class Campaign:
    """A suite of the user's own group, over HTTP."""

    def __init__(self, user: LiveUser, *tags: str, **members: Any) -> None:
        self.user = user
        body = {
            "group_name": user.name,
            "worker_schedule": {"worker_count": 2},
            "tags": list(tags),
            **members,
        }
        answer = user.http.post("/suites", json=body)
        assert answer.status_code == 201, answer.text
        self.uuid: str = answer.json()["uuid"]

    def submit(self, *args: str, **members: Any) -> str:
        body = {
            "group_name": self.user.name,
            "tags": [],
            "labels": [],
            "timeout": "1m",
            "priority": 0,
            "suite_uuid": self.uuid,
            "task_spec": {"args": list(args) or ["true"]},
            **members,
        }
        return str(self.user.call("POST", "/tasks", json=body)["uuid"])


async def take_up(link: Link, campaign: Campaign, **options: Any) -> int:
    """Wait until the scheduler has given the suite to this manager, and prepare the host."""
    async with asyncio.timeout(30):
        while True:
            answer = await link.beat("Idle", **options)
            engaged = answer["engagement"]
            if engaged is not None and engaged["suite_uuid"] == campaign.uuid:
                break
            await asyncio.sleep(0.2)
    assigned = await link.pushed("suite_assigned")
    assert assigned["suite_uuid"] == campaign.uuid
    assignment_id: int = engaged["assignment_id"]
    await link.beat("Preparing", assignment_id=assignment_id)
    answer = await link.beat("Executing", assignment_id=assignment_id)
    assert answer["engagement"]["state"] == "Executing"
    return assignment_id


def query(cluster: Cluster, sql: str, *params: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(cluster.database_url, autocommit=True) as connection:
        cursor = connection.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


async def prepared(user: LiveUser, link: Link, tag: str, count: int, **members: Any) -> Campaign:
    campaign = Campaign(user, tag, **members)
    for n in range(count):
        campaign.submit("echo", str(n))
    await take_up(link, campaign)
    return campaign
