"""WorkerComm over the control plane: work arrives by itself, words about it go into its stream.

One per lane; all lanes of a worker share the session. What the socket has no message for (signed
URLs, `watch`, follow-up tasks) is asked over HTTP with the same token.
"""

from collections.abc import Collection
from typing import Final, Literal
from uuid import UUID

import msgspec

from mitosis_protocol.control_payloads import Chunk, Dispatch, Feedback, Result
from mitosis_protocol.durations import parse_nanoseconds
from mitosis_protocol.enums import Outcome, TaskExecState, TaskResultMessage
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.specs import RemoteResource
from nodeagent.direct.session import DirectSession
from nodeagent.errors import OfferUnreadable, TaskGone
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
from nodeagent.worker.http_comm import HttpComm
from nodeagent.worker.stages import Stages

_NS_PER_S: Final = 1_000_000_000
_NO_TIMEOUT_S: Final = 10 * 365 * 86_400.0
# Words about one attempt that the coordinator does not have yet: more than this, and what may be
# left out is left out.
MAX_BACKLOG: Final = 64

Status = Literal["succeeded", "failed", "timeout", "oom", "cancelled", "crashed"]


class DirectOffer(TaskOffer, frozen=True, kw_only=True):
    """An attempt with everything its dispatch said."""

    dispatch: Dispatch


class DirectComm:
    """One lane's part in the worker's session."""

    takes_crashes = True

    def __init__(self, session: DirectSession, http: HttpComm) -> None:
        self._session = session
        self._http = http
        self._stages = Stages(self._tell_stage)
        self._in_hand: int | None = None
        self._may_have_run = False

    async def fetch(self) -> TaskOffer | None:
        await self._drop_unsettled()
        dispatch = await self._session.next_dispatch()
        self._in_hand = dispatch.task_id
        self._may_have_run = False
        return _to_offer(dispatch)

    async def report(self, task: TaskRef, report: Report) -> str | None:
        match report:
            case Finish() | Cancel():
                return None  # said by the last word: one message per task
            case Commit():
                await self.conclude(to_result(task.attempt_id, report))
            case Crash():
                result = Result(
                    task_id=task.attempt_id,
                    status="crashed",
                    exit_status=report.signal,
                    signal=report.signal,
                    reason=report.reason,
                    facts=report.facts,
                )
                await self.conclude(result)
            case Upload():
                return await self._http.report(task, report)
            case Submit():
                # Existing rule: a task that goes on may not have a successor.
                await self._http.report(task, Finish())
                return await self._http.report(task, report)
        return None

    async def conclude(self, result: Result) -> None:
        """The last word on the attempt in hand. Raises TaskGone."""
        try:
            await self._session.conclude(result)
        except TaskGone:
            self._settle()
            raise
        self._settle()

    def tell(self, feedback: Feedback) -> bool:
        """News that may be left out: whether it was sent."""
        if self._session.machine.hand.backlog(feedback.task_id) >= MAX_BACKLOG:
            return False
        self._session.note(feedback)
        return True

    async def permit(self, task: TaskRef) -> None:
        """The dispatch was the permission."""

    def note_state(self, task: TaskRef, state: TaskExecState) -> None:
        if state is TaskExecState.EXEC_PENDING:
            self._may_have_run = True
        self._stages.enter(task.attempt_id, state)

    async def heartbeat(self, held: Collection[int]) -> HeartbeatReply:
        """The session beats for all lanes, and stops come as commands."""
        return HeartbeatReply()

    async def resolve_resource(self, task: TaskRef, file: RemoteResource) -> RemoteLocation:
        return await self._http.resolve_resource(task, file)

    async def read_task(self, uuid: UUID) -> TaskSnapshot:
        return await self._http.read_task(uuid)

    async def log_chunk(self, task: TaskRef, chunk: LogChunk) -> None:
        told = Chunk(channel=chunk.stream, offset=chunk.offset, data=chunk.data)
        await self._session.say(Feedback(task_id=task.attempt_id, chunks=[told]))

    async def unregister(self) -> None:
        """The worker leaves as a whole; `worker` says so."""

    async def close(self) -> None:
        self._stages.stop()

    async def _drop_unsettled(self) -> None:
        """Nothing handed out may be forgotten: what neither ended nor crashed is given back."""
        attempt_id = self._in_hand
        if attempt_id is None:
            return
        if attempt_id in self._session.machine.hand.dispatches:
            reason = "the worker could not finish it"
            if self._may_have_run:
                result = Result(task_id=attempt_id, status="crashed", reason=reason)
                await self._session.conclude(result)
            else:
                self._session.hand_back(attempt_id, reason)
        self._settle()

    def _settle(self) -> None:
        self._in_hand = None
        self._stages.leave()

    async def _tell_stage(self, attempt_id: int, state: TaskExecState) -> None:
        self.tell(Feedback(task_id=attempt_id, exec_state=state, stage=_STAGES.get(state)))


_STAGES: Final = {
    TaskExecState.FETCH_RESOURCE: "waiting_inputs",
    TaskExecState.WATCH: "waiting_inputs",
    TaskExecState.EXEC_SPAWNED: "running",
    TaskExecState.UPLOAD_RESULT: "uploading",
}
_BY_MESSAGE: Final[dict[TaskResultMessage, Status]] = {
    TaskResultMessage.EXEC_TIMEOUT: "timeout",
    TaskResultMessage.USER_CANCELLATION: "cancelled",
}


def to_result(attempt_id: int, commit: Commit) -> Result:
    """A commit of the worker as the control plane says it."""
    return Result(
        task_id=attempt_id,
        status=_status(commit),
        exit_status=commit.exit_status,
        msg=commit.msg,
        facts=commit.facts,
    )


def _status(commit: Commit) -> Status:
    if commit.outcome is Outcome.OOM:
        return "oom"
    if commit.msg is not None:
        return _BY_MESSAGE.get(commit.msg, "failed")
    return "succeeded" if commit.exit_status == 0 else "failed"


def _to_offer(dispatch: Dispatch) -> DirectOffer:
    try:
        timeout_s = parse_nanoseconds(dispatch.timeout) / _NS_PER_S
    except (InvalidValue, msgspec.MsgspecError) as error:
        raise OfferUnreadable(
            str(error),
            attempt_id=dispatch.task_id,
            uuid=dispatch.task_uuid,
            is_resource_trouble=False,
        ) from error
    return DirectOffer(
        attempt_id=dispatch.task_id,
        uuid=dispatch.task_uuid,
        timeout_s=timeout_s or _NO_TIMEOUT_S,
        spec=dispatch.spec,
        upstream_task_uuid=dispatch.upstream_task_uuid,
        attempt=dispatch.attempt,
        live_logs=True,
        limits=dispatch.limits,
        dispatch=dispatch,
    )
