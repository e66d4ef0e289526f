"""Simulated node managers: many sockets from one process that beat, and a few that also work.

The load of benchmarks.sockets and of the tests about big fleets. Latencies are taken around each
request, so they hold what the generator itself costs on the same two cores.
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

Frame = dict[str, Any]

CONNECTING = 32  # upgrades under way at the same time
PATIENCE_S = 30.0  # how long a manager waits for an answer
FETCH = 16  # tasks a working manager takes at a time


@dataclass(frozen=True)
class Credential:
    """What a registration answered."""

    uuid: str
    token: str


@dataclass
class Samples:
    """When each answer came and how long it took, in seconds."""

    taken: list[tuple[float, float]] = field(default_factory=list)
    refused: int = 0

    def add(self, began: float) -> None:
        now = time.monotonic()
        self.taken.append((now, now - began))

    def refuse(self, answer: Frame) -> None:
        """Whoever is told to try again does; anything else is a fault of ours."""
        if not answer.get("is_retryable"):
            raise AssertionError(answer)
        self.refused += 1

    def between(self, start: float, end: float) -> list[float]:
        return [took for at, took in self.taken if start <= at < end]


class Member:
    """One manager with its socket. Requests are matched by id; the rest is counted as news."""

    def __init__(self, credential: Credential, url: str) -> None:
        self.uuid = credential.uuid
        self.token = credential.token
        self.url = url
        self.news: list[Frame] = []
        self.closed: tuple[int, str] | None = None
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Frame]] = {}
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None

    async def open(self, url: str | None = None) -> None:
        address = (url or self.url).replace("http", "ws", 1) + "/ws/managers"
        headers = {"Authorization": f"Bearer {self.token}"}
        self._socket = await connect(
            address, additional_headers=headers, proxy=None, open_timeout=60, ping_interval=None
        )
        self.closed = None
        self._reader = asyncio.create_task(self._read(self._socket))

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()
        if self._reader is not None:
            await self._reader

    async def gone(self, within_s: float) -> None:
        """Wait until the other side has ended the connection."""
        if self._reader is not None:
            async with asyncio.timeout(within_s):
                await asyncio.shield(self._reader)

    async def send(self, **message: Any) -> None:
        if self._socket is None:
            raise RuntimeError("not connected")
        await self._socket.send(json.dumps(message))

    async def request(self, kind: str, **members: Any) -> Frame:
        """The answer. Raises TimeoutError, and ConnectionError when the socket ends before it."""
        request_id = next(self._ids)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        try:
            await self.send(type=kind, request_id=request_id, **members)
            async with asyncio.timeout(PATIENCE_S):
                return await answer
        except ConnectionClosed as error:
            raise ConnectionError from error
        finally:
            del self._waiting[request_id]

    async def beat(self, state: str = "Idle", **members: Any) -> Frame:
        body = {"manager_uuid": self.uuid, "state": state, "metrics": {}, **members}
        return await self.request("heartbeat", **body)

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for text in socket:
                frame = json.loads(text)
                waiting = self._waiting.get(frame.get("request_id"))
                if waiting is None:
                    self.news.append(frame)
                elif not waiting.done():
                    waiting.set_result(frame)
        except ConnectionClosed:
            pass
        self.closed = (socket.close_code or 0, socket.close_reason or "")
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError(f"closed: {self.closed}"))


@asynccontextmanager
async def connected(members: Sequence[Member]) -> AsyncIterator[None]:
    """All of them on their sockets; closed at the end, whoever is still there."""
    door = asyncio.Semaphore(CONNECTING)

    async def enter(member: Member) -> None:
        async with door:
            await member.open()

    await asyncio.gather(*[enter(member) for member in members])
    try:
        yield
    finally:
        await asyncio.gather(*[member.close() for member in members], return_exceptions=True)


@asynccontextmanager
async def beating(members: Sequence[Member], every_s: float) -> AsyncIterator[Samples]:
    """Each beats for itself, at a phase of its own. A beat that fails ends the block."""
    samples = Samples()

    async def keep(member: Member) -> None:
        await asyncio.sleep(random.uniform(0, every_s))
        while True:
            began = time.monotonic()
            answer = await member.beat()
            samples.add(began)
            if answer["type"] not in {"heartbeat_ack", "heartbeat"}:  # an echo sends it back
                samples.refuse(answer)
            await asyncio.sleep(every_s - (time.monotonic() - began) % every_s)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(keep(member)) for member in members]
        yield samples
        for task in tasks:
            task.cancel()


class Crew:
    """The managers that work: prepared for a suite, they fetch, report and beat."""

    def __init__(self, members: Sequence[Member], *, pause_s: float) -> None:
        self.members = members
        self.done = 0
        self._pause_s = pause_s

    async def take_up(self, suite_uuid: str, within_s: float = 60) -> None:
        async with asyncio.timeout(within_s):
            await asyncio.gather(*[prepare(member, suite_uuid) for member in self.members])

    @asynccontextmanager
    async def at_work(self, samples: Samples, every_s: float) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._work(member, samples)) for member in self.members]
            tasks += [
                group.create_task(self._beat(member, samples, every_s)) for member in self.members
            ]
            yield
            for task in tasks:
                task.cancel()

    async def _beat(self, member: Member, samples: Samples, every_s: float) -> None:
        while True:
            began = time.monotonic()
            answer = await member.beat("Executing")
            samples.add(began)
            if answer["type"] != "heartbeat_ack":
                samples.refuse(answer)
            await asyncio.sleep(every_s)

    async def _work(self, member: Member, samples: Samples) -> None:
        while True:
            answer = await member.request("fetch_tasks", max_tasks=FETCH)
            if answer["type"] == "error":
                samples.refuse(answer)
            attempts = {task["task_id"] for task in answer.get("tasks", [])}
            while attempts:
                settled = await report(member, attempts, samples)
                self.done += len(settled)
                attempts -= settled
            await asyncio.sleep(self._pause_s)


async def prepare(member: Member, suite_uuid: str) -> None:
    """Wait for the suite, then say that the host is ready for it."""
    while True:
        engaged = (await member.beat())["engagement"]
        if engaged is not None and engaged["suite_uuid"] == suite_uuid:
            break
        await asyncio.sleep(0.3)
    for state in ("Preparing", "Executing"):
        await member.beat(state, assignment_id=engaged["assignment_id"])


async def report(member: Member, attempts: Set[int], samples: Samples) -> set[int]:
    """Commit them all; those that were taken. The rest has to be said again."""
    lines = [{"task_id": attempt, "op": "commit", "exit_status": 0} for attempt in attempts]
    answer = await member.request("report_tasks", reports=lines)
    if answer["type"] == "error":
        samples.refuse(answer)
        return set()
    found = {line["task_id"]: line["answer"] for line in answer["results"]}
    if not set(found.values()) <= {"ok", "ok_duplicate", "retry_later"}:
        raise AssertionError(answer)
    return {attempt for attempt, said in found.items() if said != "retry_later"}


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def p99(values: Sequence[float]) -> float:
    return percentile(values, 0.99)
