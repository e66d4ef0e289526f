"""WorkerComm over the HTTP API that existing coordinators speak, with a worker token.

Owns paths and what each status means per call; bodies are in http_wire. Built by main after
enrolment. Extra fields of our coordinator (`attempt`, `live_logs`, heartbeat answers) are optional.
"""

from collections.abc import Collection
from urllib.parse import quote
from uuid import UUID

import httpx2
import msgspec

from mitosis_protocol.enums import TaskExecState
from mitosis_protocol.specs import RemoteResource
from nodeagent.errors import (
    CoordinatorUnavailable,
    QuotaExceeded,
    ReportRefused,
    ResourceMissing,
    ResourceRefused,
    TaskGone,
    WorkerRemoved,
)
from nodeagent.worker.comm import (
    HeartbeatReply,
    LogChunk,
    RemoteLocation,
    Report,
    Submit,
    TaskOffer,
    TaskRef,
    TaskSnapshot,
    Upload,
)
from nodeagent.worker.http_client import decode, problem, send
from nodeagent.worker.http_wire import OfferedTask, ReadTask, UrlAnswer, encode_report

_JSON = {"Content-Type": "application/json"}
_TEXT = {"Content-Type": "text/plain"}


class HttpComm:
    """A registered worker's connection to its coordinator."""

    takes_crashes = False

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        # Says that we understand the answers which existing workers do not know.
        client.headers["Mitosis-Worker"] = "1"
        self._takes_inventory = False

    async def fetch(self) -> TaskOffer | None:
        response = _expect_success(await self._call("GET", "/workers/tasks"))
        if response.content.strip() in (b"", b"null"):
            return None
        return decode(response, OfferedTask).to_offer(response.content)

    async def report(self, task: TaskRef, report: Report) -> str | None:
        headers = _JSON
        if isinstance(report, Submit):
            # A repeated submission must not create a second task where the server knows keys.
            headers = {**_JSON, "Idempotency-Key": f"attempt-{task.attempt_id}-submit"}
        response = await self._call(
            "POST", "/workers/tasks", content=encode_report(task, report), headers=headers
        )
        if response.status_code == 404:
            raise TaskGone(problem(response))
        if response.status_code == 403 and isinstance(report, Upload):
            raise QuotaExceeded(problem(response))
        if not response.is_success:
            raise ReportRefused(problem(response))
        return decode(response, UrlAnswer).url if isinstance(report, Upload) else None

    async def permit(self, task: TaskRef) -> None:
        """Nobody to ask: the coordinator has counted the fetch as the start."""

    def note_state(self, task: TaskRef, state: TaskExecState) -> None:
        """The coordinator has no place for it."""

    async def heartbeat(self, held: Collection[int]) -> HeartbeatReply:
        """`held` is said only to a coordinator whose answers showed that it reads it.

        Existing ones want no body at all.
        """
        content = msgspec.json.encode({"held": list(held)}) if self._takes_inventory else None
        headers = _JSON if self._takes_inventory else None
        response = _expect_success(
            await self._call("POST", "/workers/heartbeat", content=content, headers=headers)
        )
        try:
            reply = msgspec.json.decode(response.content, type=HeartbeatReply)
        except msgspec.MsgspecError:
            # Existing coordinators answer null; the status alone is the heartbeat.
            return HeartbeatReply()
        self._takes_inventory = True
        return reply

    async def resolve_resource(self, task: TaskRef, file: RemoteResource) -> RemoteLocation:
        if file.artifact is not None:
            kind = file.artifact.content_type.value
            path = f"/workers/tasks/{file.artifact.uuid}/artifacts/{kind}"
        else:
            assert file.attachment is not None
            path = f"/workers/tasks/{task.uuid}/attachments/{quote(file.attachment.key, safe='/')}"
        response = await self._call("GET", path)
        if response.status_code == 404:
            raise ResourceMissing(problem(response))
        if not response.is_success:
            raise ResourceRefused(problem(response))
        return decode(response, RemoteLocation)

    async def read_task(self, uuid: UUID) -> TaskSnapshot:
        response = await self._call("GET", f"/workers/tasks/{uuid}")
        if response.status_code in (403, 404):
            raise ResourceMissing(problem(response))
        return decode(_expect_success(response), ReadTask).to_snapshot()

    async def log_chunk(self, task: TaskRef, chunk: LogChunk) -> None:
        path = f"/workers/tasks/{task.uuid}/logs?stream={chunk.stream}&offset={chunk.offset}"
        response = await self._call("POST", path, content=chunk.data, headers=_TEXT)
        if not response.is_success:
            raise ReportRefused(problem(response))

    async def unregister(self) -> None:
        try:
            await self._call("DELETE", "/workers")
        except WorkerRemoved:
            return

    async def close(self) -> None:
        await self._client.aclose()

    async def _call(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx2.Response:
        response = await send(self._client, method, path, content=content, headers=headers)
        if response.status_code == 401:
            raise WorkerRemoved("the coordinator no longer knows this worker")
        return response


def _expect_success(response: httpx2.Response) -> httpx2.Response:
    """Existing workers exit on a stray status here, which lets one bad proxy kill a fleet."""
    if not response.is_success:
        raise CoordinatorUnavailable(problem(response))
    return response
