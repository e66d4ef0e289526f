"""A pool of real workers under test, each reachable through a socket of its own."""

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from mitosis_protocol.suites import ResourceLimits
from nodeagent.errors import AgentError
from nodeagent.failures import ExitReason
from nodeagent.ipc.server import WorkerEndpoint, WorkerKey
from nodeagent.pool.launch import SlotPlan, WorkerLaunch
from nodeagent.pool.pool import PoolSettings, WorkerPool

# Commands run as a user who may not see the interpreter of the tests.
PYTHON = shutil.which("python3", path=os.defpath) or sys.executable
WORKER = "tests.fakes.slot_worker:main"


class LabWorker:
    """The test's end of one worker."""

    def __init__(self, key: WorkerKey, pid: int, channel: socket.socket) -> None:
        self.key = key
        self.pid = pid
        self._channel = channel
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self) -> dict[str, Any]:
        self._reader, self._writer = await asyncio.open_connection(
            sock=self._channel, limit=1 << 24
        )
        return await self.hear()

    async def hear(self, within_s: float = 60.0) -> dict[str, Any]:
        assert self._reader is not None
        async with asyncio.timeout(within_s):
            line = await self._reader.readline()
        assert line, "the worker has gone"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def tell(self, **request: Any) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps(request).encode() + b"\n")

    async def run(self, *argv: str, **request: Any) -> dict[str, Any]:
        self.tell(argv=list(argv), **request)
        return await self.hear(within_s=90)

    async def shell(self, script: str, **request: Any) -> dict[str, Any]:
        return await self.run("sh", "-c", script, **request)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        else:
            self._channel.close()


class PoolLab:
    """A pool, its workers, and what it said."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("target", WORKER)
        settings.setdefault("instance", f"test-{os.getpid()}-{uuid4().hex[:6]}")
        self.settings = PoolSettings(**settings)
        self.exits: list[tuple[WorkerKey, ExitReason]] = []
        self.trouble: list[AgentError] = []
        self.pool = WorkerPool(self.settings, self._on_exit, self.trouble.append)
        self.workers: list[LabWorker] = []
        self._heard = asyncio.Event()

    def _on_exit(self, key: WorkerKey, reason: ExitReason) -> None:
        self.exits.append((key, reason))
        self._heard.set()

    async def spawn(
        self,
        plan: SlotPlan | None = None,
        *,
        limits: ResourceLimits | None = None,
        generation: int = 1,
        env: dict[str, str] | None = None,
        connect: bool = True,
    ) -> LabWorker:
        plan = plan or SlotPlan(self._next_id(), limits=limits)
        key = WorkerKey(plan.local_id, generation)
        ours, theirs = socket.socketpair()
        with theirs:
            endpoint = WorkerEndpoint(
                transport="unix", worker=key, root="/", directory="/", fd=theirs.fileno()
            )
            launch = WorkerLaunch(
                key=key,
                endpoint=endpoint,
                slot=plan,
                suite_uuid=uuid4(),
                work_dir="/",
                env=env or {},
            )
            pid = await self.pool.spawn(launch)
        worker = LabWorker(key, pid, ours)
        self.workers.append(worker)
        if connect:
            answer = await worker.connect()
            assert answer["ready"] == pid
        return worker

    def _next_id(self) -> int:
        return max((worker.key.local_id for worker in self.workers), default=-1) + 1

    async def exit_of(self, key: WorkerKey, within_s: float = 60.0) -> ExitReason:
        async with asyncio.timeout(within_s):
            while True:
                for known, reason in self.exits:
                    if known == key:
                        return reason
                self._heard.clear()
                await self._heard.wait()

    def directories(self) -> list[Path]:
        """Every cgroup of this pool."""
        name = f"mitosis-{self.settings.instance}"
        return [
            path
            for root in Path("/sys/fs/cgroup").iterdir()
            if root.is_dir()
            for path in root.rglob(name)
        ]

    def lacks(self, *controllers: str) -> str | None:
        """Why a test of these controllers cannot run on this host."""
        for name in controllers:
            if not self.pool._tree.can(name):
                return f"cgroup controller {name}: {self.pool._tree.trouble[name]}"
        return None

    def members(self, worker: LabWorker) -> set[int]:
        return self.pool._tree.members(worker.key.local_id)

    def close_sockets(self) -> None:
        for worker in self.workers:
            worker.close()


@asynccontextmanager
async def running_pool(**settings: Any) -> AsyncIterator[PoolLab]:
    """A pool that is gone, with everything it started, when the block ends."""
    lab = PoolLab(**settings)
    await lab.pool.open()
    try:
        yield lab
    finally:
        lab.close_sockets()
        await lab.pool.close()
        assert lab.directories() == []
