"""One attempt in a lane: a plain command as every worker runs it, or a handler of this process.

A handler is interrupted as any coroutine is. One that does not end within the grace cannot be
killed without the process, so the worker says so and ends: its lease gives the rest back.
"""

import asyncio
import traceback
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from mitosis_protocol.control_payloads import Dispatch, Result
from mitosis_protocol.enums import TaskExecState, TaskResultMessage
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.node_calls import COMMAND_NODE
from nodeagent.direct.comm import DirectComm, DirectOffer
from nodeagent.direct.context import Context
from nodeagent.direct.nodes import Handler, Handlers
from nodeagent.direct.shelf import Shelf
from nodeagent.errors import HostUnusable, ResourceMissing, ResourceRefused, TaskGone
from nodeagent.worker.artifacts import ArtifactUploader
from nodeagent.worker.comm import Commit, TaskOffer, TaskRef
from nodeagent.worker.control import Stopped, StopReason, TaskControl
from nodeagent.worker.log_tail import LogTail
from nodeagent.worker.resources import fetch_resources
from nodeagent.worker.task_run import PREPARATION_S, TaskRunner
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.transfers import Transfers
from nodeagent.worker.workspace import Workspace

log = structlog.stdlib.get_logger(__name__)

GRACE_S: Final = 10.0
FAILED_STATUS: Final = 1 << 8  # as a command that exits with 1
_MAX_REASON: Final = 1024


class NodeRunner:
    """Runs the attempts of one lane."""

    def __init__(
        self,
        commands: TaskRunner,
        comm: DirectComm,
        transfers: Transfers,
        workspace: Workspace,
        handlers: Handlers,
        shelf: Shelf,
    ) -> None:
        self._commands = commands
        self._comm = comm
        self._transfers = transfers
        self._workspace = workspace
        self._handlers = handlers
        self._shelf = shelf
        self._uploader = ArtifactUploader(comm, transfers, workspace)

    async def run(self, offer: TaskOffer, control: TaskControl) -> None:
        """As TaskRunner.run."""
        if not isinstance(offer, DirectOffer) or offer.dispatch.node_type == COMMAND_NODE:
            await self._commands.run(offer, control)
            return
        log.info("node.started", node_type=offer.dispatch.node_type)
        try:
            result = await self._reach_result(offer, control)
            await control.guard(self._conclude(offer, result), only_if_dropped=True)
        except Stopped as stop:
            log.info("task.dropped", reason=stop.reason.value)
        except TaskGone as error:
            log.warning("task.gone", error=str(error))

    async def reject(self, task: TaskRef, commit: Commit) -> None:
        await self._commands.reject(task, commit)

    async def _reach_result(self, offer: DirectOffer, control: TaskControl) -> Result:
        try:
            if offer.spec.resources:
                await control.guard(self._prepare(offer))
            control.check()
        except (ResourceMissing, ResourceRefused) as error:
            is_missing = isinstance(error, ResourceMissing)
            msg = (
                TaskResultMessage.RESOURCE_NOT_FOUND
                if is_missing
                else TaskResultMessage.RESOURCE_FORBIDDEN
            )
            return _ended(offer, "failed", 0, msg, str(error))
        except TimeoutError:
            return _ended(offer, "failed", 0, TaskResultMessage.FETCH_RESOURCE_TIMEOUT)
        except Stopped as stop:
            if stop.reason is not StopReason.CANCELLED:
                raise
            return _cancelled(offer)
        return await self._call(offer, control)

    async def _prepare(self, offer: DirectOffer) -> None:
        self._comm.note_state(offer, TaskExecState.FETCH_RESOURCE)
        async with asyncio.timeout(PREPARATION_S):
            await fetch_resources(self._comm, self._transfers, self._workspace, offer)

    async def _call(self, offer: DirectOffer, control: TaskControl) -> Result:
        context = Context(
            offer.dispatch,
            self._workspace,
            teller=self._comm,
            control=control,
            shelf=self._shelf,
        )
        files = {"stdout": self._workspace.stdout_file, "stderr": self._workspace.stderr_file}
        tail = LogTail(self._comm, offer, files)
        tail.start()
        self._comm.note_state(offer, TaskExecState.EXEC_PENDING)
        self._comm.note_state(offer, TaskExecState.EXEC_SPAWNED)
        run = self._handlers.get(offer.dispatch.node_type)
        try:
            working = asyncio.ensure_future(_contained(run, context, offer.dispatch))
            result = await _await_end(offer, control, working)
        finally:
            await tail.stop()
        result = await self._explain(result, working)
        if not control.is_dropped:
            await control.guard(tail.finish(), only_if_dropped=True)
        elif control.reason is not None:
            raise Stopped(control.reason)
        return msgspec.structs.replace(result, artifacts=context.left)

    async def _explain(
        self, result: Result, working: "asyncio.Future[dict[str, Any] | None]"
    ) -> Result:
        """The traceback of a failed handler belongs into its output."""
        error = None if working.cancelled() else working.exception()
        if error is not None:
            text = "".join(traceback.format_exception(error))
            await run_blocking(_append, self._workspace.stderr_file, text)
        return result

    async def _conclude(self, offer: DirectOffer, result: Result) -> None:
        self._comm.note_state(offer, TaskExecState.UPLOAD_RESULT)
        if not await self._uploader.upload_all(offer) and result.msg is None:
            lost = TaskResultMessage.UPLOAD_RESULT_TIMEOUT
            result = msgspec.structs.replace(result, status="failed", msg=lost)
        await self._comm.conclude(result)
        log.info("node.ended", status=result.status)


class HandlerExited(Exception):
    """The handler called `sys.exit`, which is not its to decide."""


async def _contained(run: Handler, context: Context, dispatch: Dispatch) -> dict[str, Any] | None:
    try:
        return await run(context, dict(dispatch.parameters))
    except SystemExit as end:
        # It would end the whole worker through the event loop.
        raise HandlerExited(f"exit status {end.code}") from end


async def _await_end(
    offer: DirectOffer, control: TaskControl, working: "asyncio.Future[dict[str, Any] | None]"
) -> Result:
    """The handler's end, by itself or by us. Raises HostUnusable when it ignores us."""
    stopping = asyncio.ensure_future(control.wait_stopped())
    try:
        first: set[asyncio.Future[Any]] = {working, stopping}
        await asyncio.wait(first, timeout=offer.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        was_stopped = control.reason is not None
        if working.done():
            return _judge(offer, working)
        working.cancel()
        done, _ = await asyncio.wait({working}, timeout=GRACE_S)
        if not done:
            raise HostUnusable(f"the handler of {offer.dispatch.node_type} ignores its end")
    except asyncio.CancelledError:
        working.cancel()
        await asyncio.wait({working}, timeout=GRACE_S)
        raise
    finally:
        stopping.cancel()
    if was_stopped:
        return _cancelled(offer)
    return _ended(offer, "timeout", 15, TaskResultMessage.EXEC_TIMEOUT)


def _judge(offer: DirectOffer, working: "asyncio.Future[dict[str, Any] | None]") -> Result:
    if working.cancelled():
        return _ended(offer, "failed", FAILED_STATUS, None, "the handler cancelled itself")
    error = working.exception()
    if error is not None:
        reason = f"{type(error).__name__}: {error}"
        log.warning("node.failed", error=reason)
        return _ended(offer, "failed", FAILED_STATUS, None, reason)
    outputs = working.result() or {}
    try:
        # To plain JSON and back: what cannot be sent is the handler's failure, not the session's.
        plain = msgspec.json.decode(msgspec.json.encode(outputs), type=dict[str, Any])
        return Result(task_id=offer.attempt_id, status="succeeded", outputs=plain)
    except (TypeError, InvalidValue, msgspec.MsgspecError) as refused:
        reason = f"what the handler returned cannot be sent: {refused}"
        return _ended(offer, "failed", FAILED_STATUS, None, reason)


def _cancelled(offer: DirectOffer) -> Result:
    return _ended(offer, "cancelled", 0, TaskResultMessage.USER_CANCELLATION)


def _ended(
    offer: DirectOffer,
    status: str,
    exit_status: int,
    msg: TaskResultMessage | None,
    reason: str = "",
) -> Result:
    result = Result(task_id=offer.attempt_id, status="failed", exit_status=exit_status, msg=msg)
    return msgspec.structs.replace(result, status=status, reason=reason[:_MAX_REASON])


def _append(file: Path, text: str) -> None:
    with file.open("a", encoding="utf-8", errors="replace") as out:
        out.write(text)
