"""WorkerComm towards the node agent of the same host: fetches are held open, reports are stored.

Owns which attempt is in hand, so that nothing handed out is ever forgotten: what was neither
finished nor crashed is dropped before the next fetch. Attempts that come with an answer wait in
ahead. Built by managed.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, Literal
from uuid import UUID

from mitosis_protocol.durations import parse_nanoseconds
from mitosis_protocol.enums import TaskExecState, TaskState
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.ipc import (
    CrashTask,
    Done,
    DropTask,
    FetchReply,
    FetchTask,
    FinishTask,
    FromWorker,
    Heartbeat,
    NoteEvents,
    ReadReply,
    ReadTask,
    Ready,
    Refused,
    RequestUpload,
    ResolveReply,
    ResolveResources,
    StartReply,
    StartTask,
    SubmitFollowUp,
    ToWorker,
    UploadReply,
    WorkerSettings,
    WorkItem,
)
from mitosis_protocol.manager_reports import LogChunk as WireChunk
from mitosis_protocol.manager_reports import TaskEvent
from mitosis_protocol.specs import RemoteResource
from nodeagent.errors import (
    AgentError,
    CoordinatorUnavailable,
    IpcTimedOut,
    QuotaExceeded,
    ReportRefused,
    ResourceMissing,
    ResourceRefused,
    TaskGone,
    WorkerRemoved,
)
from nodeagent.ipc.client import IpcClient
from nodeagent.ipc.names import is_agent_alive
from nodeagent.worker.ahead import Ahead
from nodeagent.worker.comm import (
    Cancel,
    Commit,
    Crash,
    Finish,
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
from nodeagent.worker.stages import Stages

_NS_PER_S: Final = 1_000_000_000
_BEAT_ANSWER_S: Final = 3.0
_LAST_WORD_S: Final = 5.0
# A manager of the RFC alone is told no timeout: the task may take as long as it likes.
_NO_TIMEOUT_S: Final = 10 * 365 * 86_400.0


class IpcComm:
    """A managed worker's conversation with its agent."""

    takes_crashes = True

    def __init__(
        self,
        client: IpcClient,
        root: Path,
        settings: WorkerSettings,
        on_over: Callable[[], None],
        is_leaving: Callable[[], bool],
    ) -> None:
        self._client = client
        self._root = root
        self.settings = settings
        self._on_over = on_over
        self._is_leaving = is_leaving
        self._in_hand: int | None = None
        self._may_have_run = False
        self._ahead = Ahead(client, lambda: self._in_hand)
        self._stages = Stages(self._tell_stage)

    async def ready(self, pid: int, trouble: str | None = None) -> None:
        """The first word."""
        await self._client.ask(
            "heartbeat", Ready(request_id=self._client.next_id(), pid=pid, trouble=trouble)
        )

    async def fetch(self) -> TaskOffer | None:
        await self._drop_in_hand()
        if not self._ahead:
            await self._ahead.hear_out()
        item = self._ahead.take()
        if item is not None:
            return self._take(item)
        reply = await self._client.ask("fetch", FetchTask(request_id=self._client.next_id()))
        if not isinstance(reply, FetchReply):
            raise _trouble(reply)
        if reply.is_over:
            self._on_over()
        if reply.item is None:
            return None
        return self._take(reply.item)

    async def report(self, task: TaskRef, report: Report) -> str | None:
        if isinstance(report, Finish | Cancel):
            return None  # said by the last word: one round trip per task
        if isinstance(report, Commit | Crash):
            await self._ahead.hear_out()
        message = self._to_message(task, report)
        if isinstance(message, FinishTask) and message.is_patient:
            self._ahead.say(message)
            self._settle()
            return None
        answer = await self._client.ask("report", message)
        if isinstance(report, Commit | Crash) and _is_settled(answer):
            self._settle()
        if isinstance(answer, UploadReply):
            return answer.url
        if not isinstance(answer, Done):
            raise _trouble(answer)
        self._ahead.add(answer.next_items)
        return None

    def _to_message(self, task: TaskRef, report: Commit | Crash | Upload | Submit) -> FromWorker:
        request_id, attempt_id = self._client.next_id(), task.attempt_id
        match report:
            case Commit():
                is_staying = not self._is_leaving()
                return FinishTask(
                    request_id=request_id,
                    attempt_id=attempt_id,
                    exit_status=report.exit_status,
                    msg=report.msg,
                    outcome=report.outcome,
                    facts=report.facts,
                    wants_next=is_staying,
                    is_patient=is_staying and bool(self._ahead),
                )
            case Crash():
                return CrashTask(
                    request_id=request_id,
                    attempt_id=attempt_id,
                    signal=report.signal,
                    reason=report.reason,
                    facts=report.facts,
                )
            case Upload():
                return RequestUpload(
                    request_id=request_id,
                    attempt_id=attempt_id,
                    content_type=report.content_type,
                    content_length=report.content_length,
                )
            case Submit():
                return SubmitFollowUp(
                    request_id=request_id, attempt_id=attempt_id, request=bytes(report.request)
                )

    async def permit(self, task: TaskRef) -> None:
        answer = await self._ask(
            StartTask(request_id=self._client.next_id(), attempt_id=task.attempt_id)
        )
        if not isinstance(answer, StartReply):
            raise _trouble(answer)
        if not answer.may_run:
            raise TaskGone("the coordinator did not let it start")

    def note_state(self, task: TaskRef, state: TaskExecState) -> None:
        if state is TaskExecState.EXEC_PENDING:
            self._may_have_run = True
        self._stages.enter(task.attempt_id, state)

    async def heartbeat(self, held: Collection[int]) -> HeartbeatReply:
        """Cancellations come by the topic; this finds out that the agent is gone."""
        if not is_agent_alive(self._root):
            raise WorkerRemoved("the agent is gone")
        beat = Heartbeat(request_id=self._client.next_id(), attempt_id=next(iter(held), None))
        try:
            async with asyncio.timeout(_BEAT_ANSWER_S):
                await self._client.ask("heartbeat", beat)
        except TimeoutError as error:
            raise IpcTimedOut("the agent does not answer") from error
        return HeartbeatReply()

    async def resolve_resource(self, task: TaskRef, file: RemoteResource) -> RemoteLocation:
        answer = await self._ask(
            ResolveResources(
                request_id=self._client.next_id(), attempt_id=task.attempt_id, resources=[file]
            )
        )
        if not isinstance(answer, ResolveReply) or len(answer.resources) != 1:
            raise _trouble(answer)
        found = answer.resources[0]
        if found.error is ErrorCode.OBJECT_NOT_FOUND:
            raise ResourceMissing("no such object")
        if found.url is None:
            raise ResourceRefused(f"no link: {found.error}")
        return RemoteLocation(found.url, found.size)

    async def read_task(self, uuid: UUID) -> TaskSnapshot:
        if self._in_hand is None:
            raise ResourceMissing("only a task in hand may look at another")
        answer = await self._ask(
            ReadTask(request_id=self._client.next_id(), attempt_id=self._in_hand, task_uuid=uuid)
        )
        if isinstance(answer, Refused) and answer.code is ErrorCode.OBJECT_NOT_FOUND:
            raise ResourceMissing(answer.message)
        if not isinstance(answer, ReadReply) or answer.state is None:
            raise _trouble(answer)
        # The agent is told the state alone: whoever is over is committed.
        return TaskSnapshot(
            state=answer.state,
            msg=None,
            is_committed=answer.state in (TaskState.FINISHED, TaskState.CANCELLED),
            downstream_task_uuid=None,
        )

    async def log_chunk(self, task: TaskRef, chunk: LogChunk) -> None:
        stream: Literal["stdout", "stderr"] = "stdout" if chunk.stream == "stdout" else "stderr"
        event = TaskEvent(task_id=task.attempt_id, log=WireChunk(stream, chunk.offset, chunk.data))
        answer = await self._ask(NoteEvents(request_id=self._client.next_id(), events=[event]))
        if not isinstance(answer, Done):
            raise _trouble(answer)

    async def unregister(self) -> None:
        """The agent sees our exit; only what is in hand has to be given back."""
        with contextlib.suppress(WorkerRemoved):
            await self._drop_in_hand()
            await self._ahead.hear_out()
            while (dropping := self._ahead.drop_next()) is not None:
                await self._drop(dropping)

    async def close(self) -> None:
        """The last word is heard before the agent sees our exit, whatever made us leave."""
        with contextlib.suppress(AgentError, TimeoutError):
            async with asyncio.timeout(_LAST_WORD_S):
                await self._ahead.hear_out()
        self._ahead.close()
        self._stages.stop()
        self._client.close()

    def _to_offer(self, item: WorkItem) -> TaskOffer:
        task = item.task
        return TaskOffer(
            attempt_id=task.task_id,
            uuid=task.task_uuid,
            timeout_s=_timeout_s(task.timeout),
            spec=task.spec,
            upstream_task_uuid=task.upstream_task_uuid,
            attempt=task.attempt,
            live_logs=self.settings.log_bytes_per_s > 0,
            log_bytes_per_s=self.settings.log_bytes_per_s,
            limits=item.limits,
            needs_permit=item.needs_permit,
        )

    async def _ask(self, message: FromWorker) -> ToWorker:
        return await self._client.ask("report", message)

    async def _drop_in_hand(self) -> None:
        if self._in_hand is None:
            return
        await self._drop(
            DropTask(
                request_id=self._client.next_id(),
                attempt_id=self._in_hand,
                has_started=self._may_have_run,
            )
        )
        self._settle()

    async def _drop(self, dropping: DropTask) -> None:
        answer = await self._ask(dropping)
        if not _is_settled(answer):
            raise _trouble(answer)

    def _take(self, item: WorkItem) -> TaskOffer:
        self._in_hand = item.task.task_id
        self._may_have_run = False
        return self._to_offer(item)

    def _settle(self) -> None:
        self._in_hand = None
        self._stages.leave()

    async def _tell_stage(self, attempt_id: int, state: TaskExecState) -> None:
        event = TaskEvent(task_id=attempt_id, exec_state=state)
        await self._ask(NoteEvents(request_id=self._client.next_id(), events=[event]))


@functools.lru_cache(maxsize=64)
def _timeout_s(text: str) -> float:
    """The tasks of a suite mostly have one in common."""
    return parse_nanoseconds(text) / _NS_PER_S or _NO_TIMEOUT_S


def _is_settled(answer: ToWorker) -> bool:
    return isinstance(answer, Done) or (isinstance(answer, Refused) and answer.is_gone)


def _trouble(answer: ToWorker) -> AgentError:
    """What an answer means that is not the one that was hoped for."""
    if not isinstance(answer, Refused):
        return ReportRefused(f"the agent answered with {type(answer).__name__}")
    if answer.is_gone:
        return TaskGone(answer.message)
    if answer.is_retryable:
        return CoordinatorUnavailable(answer.message)
    if answer.code is ErrorCode.QUOTA_EXCEEDED:
        return QuotaExceeded(answer.message)
    return ReportRefused(answer.message)
