"""A worker's side of the IPC without its transport: requests, answers, what the agent publishes.

Base of iceoryx_client and unix_client; used by nodeagent.worker.ipc_comm on the worker's only
thread, its event loop. All waiting is one wait of that loop on one descriptor.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

import structlog

from mitosis_protocol.ipc import Control, FromWorker, Refused, ToWorker, WorkerSettings
from nodeagent.errors import WorkerRemoved
from nodeagent.ipc.crowd import CrowdView
from nodeagent.ipc.payloads import PUBLISHED, TO_WORKER, Payloads, Unreadable
from nodeagent.ipc.server import ServiceName, WorkerEndpoint
from nodeagent.ipc.spin import Spin

log = structlog.stdlib.get_logger(__name__)

Published: TypeAlias = Control | WorkerSettings


class IpcClient(Protocol):
    """What a worker needs of either transport."""

    def next_id(self) -> int:
        """A request id that was not used before."""
        ...

    async def ask(self, service: ServiceName, message: FromWorker) -> ToWorker:
        """The agent's answer, however long it takes. Raises WorkerRemoved when it is gone."""
        ...

    def post(self, service: ServiceName, message: FromWorker) -> asyncio.Future[ToWorker]:
        """The same without waiting: said when this returns, whatever becomes of the answer."""
        ...

    def look(self) -> None:
        """Take in what has arrived and was not urgent enough to wake anybody."""
        ...

    def close(self) -> None: ...


class Client:
    """Requests in flight of one worker."""

    def __init__(self, endpoint: WorkerEndpoint, on_published: Callable[[Published], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._payloads = Payloads(Path(endpoint.directory), "worker")
        self._on_published = on_published
        self._waiting: dict[int, asyncio.Future[ToWorker]] = {}
        self._last_id = 0
        self._spin = Spin(CrowdView(Path(endpoint.root)).has_room)
        self._loss: str | None = None

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    async def ask(self, service: ServiceName, message: FromWorker) -> ToWorker:
        request_id = message.request_id
        try:
            answer = self.post(service, message)
            if self._spin.until(lambda: self._poll() and answer.done()):
                return answer.result()
            return await answer
        finally:
            self._waiting.pop(request_id, None)
            self._forget(request_id)

    def post(self, service: ServiceName, message: FromWorker) -> asyncio.Future[ToWorker]:
        if self._loss is not None:
            raise WorkerRemoved(self._loss)
        answer: asyncio.Future[ToWorker] = self._loop.create_future()
        self._waiting[message.request_id] = answer
        self._post(service, message.request_id, self._payloads.pack(message))
        return answer

    def look(self) -> None:
        self._poll()

    # Said by the transport

    def _answered(self, data: bytes, request_id: int | None = None) -> None:
        """`request_id` where the transport knows it better than the message."""
        try:
            answer = TO_WORKER.decode(self._payloads.unpack(data))
        except Unreadable as error:
            # An answer we cannot read will not come again: better to end than to wait for ever.
            self._lost(f"an answer could not be read: {error}")
            return
        if isinstance(answer, Refused) and answer.request_id == 0 and request_id is None:
            self._lost(f"a request was not understood: {answer.message}")
            return
        waiting = self._waiting.pop(request_id or answer.request_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _published(self, data: bytes) -> None:
        try:
            message = PUBLISHED.decode(self._payloads.unpack(data))
        except Unreadable as error:
            log.warning("ipc.control_unreadable", error=str(error))
            return
        self._on_published(message)

    def _lost(self, why: str) -> None:
        self._loss = self._loss or why
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(WorkerRemoved(why))

    # Done by the transport

    def _post(self, service: ServiceName, request_id: int, data: bytes) -> None:
        raise NotImplementedError

    def _poll(self) -> bool:
        """Take in whatever has arrived, without waiting; true unless there was nothing."""
        raise NotImplementedError

    def _forget(self, request_id: int) -> None:
        """The request is over: answered, or nobody waits any more."""
