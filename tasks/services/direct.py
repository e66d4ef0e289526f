"""What a direct worker's session does with the queue: claim, start, feedback, result, give back.

Called by the worker socket. The statements are those of every other runner; identity is the
token's, the fence is the attempt. Everything may be repeated.
"""

from typing import Final, Literal, cast
from uuid import uuid4

import msgspec

from core.errors import AuthenticationFailed, DomainError, StorageUnavailable, Superseded
from mitosis_protocol.control_payloads import Chunk, Dispatch, Feedback, Result
from mitosis_protocol.durations import format_duration
from mitosis_protocol.enums import ReportAnswer
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.node_calls import (
    COMMAND_NODE,
    Affinity,
    Middleware,
    NodeCall,
    WorkerResource,
)
from mitosis_protocol.specs import TaskSpec
from mitosis_protocol.suites import ResourceLimits
from tasks.dispatcher import Claim, Held, Progress, Settled, Started, get_dispatcher
from tasks.rows import ClaimedTask, ClaimRequest, ClaimVerdict
from tasks.services.failure import abort_report, failure_report
from tasks.services.logs import LogStream, append_log_chunk
from tasks.services.manager_attempts import find_held
from tasks.services.report import commit_report, legacy_op_id, report_progress, settle, start

_LOGGED: Final = frozenset(stream.value for stream in LogStream)
_TAKEN: Final = frozenset({ReportAnswer.OK, ReportAnswer.OK_DUPLICATE})
_encoder: Final = msgspec.json.Encoder()


class _NodeOf(msgspec.Struct):
    """All we want to know of a stored spec."""

    node: NodeCall | None = None


_NODE: Final = msgspec.json.Decoder(_NodeOf)
_MIDDLEWARE: Final = msgspec.json.Decoder(Middleware)


async def claim_for_direct(*, runner_id: int, session_epoch: int, want: int) -> Claim:
    """Up to `want` tasks, or the verdict why there are none; 0 asks for the verdict alone.

    Raises Superseded and AuthenticationFailed. What a lost answer claimed is found by the next
    register or heartbeat, which does not name it.
    """
    request = ClaimRequest(
        runner_id=runner_id, session_epoch=session_epoch, claim_id=uuid4(), want=want
    )
    claim = await get_dispatcher().claims.submit(request)
    if claim.verdict is ClaimVerdict.REVOKED:
        raise AuthenticationFailed("Wrong credentials", code=ErrorCode.AUTH_REVOKED_TOKEN)
    if claim.verdict is ClaimVerdict.SUPERSEDED:
        raise Superseded("a newer session of this worker took over")
    return claim


def dispatch_of(task: ClaimedTask) -> Dispatch:
    """The message that hands a claimed task over."""
    node = _NODE.decode(task.spec).node
    chain = Middleware() if task.middleware is None else _MIDDLEWARE.decode(task.middleware)
    return Dispatch(
        task_id=task.attempt_id,
        task_uuid=task.uuid,
        attempt=task.attempt,
        node_type=COMMAND_NODE if node is None else node.type,
        # As it was stored: decoding it here only to encode it again would double the work.
        spec=cast("TaskSpec", task.spec),
        parameters={} if node is None else node.parameters,
        timeout=format_duration(task.timeout_s),
        priority=task.priority,
        upstream_task_uuid=task.upstream_task_uuid,
        limits=cast("ResourceLimits | None", task.limits),
        concurrency_key=task.concurrency_key,
        affinity=cast("Affinity | None", task.affinity),
        resource_refs=cast("list[WorkerResource]", task.resource_refs or []),
        host_node_id=chain.host_node_id,
        middleware_chain=chain.middleware_chain,
        chain_index=chain.chain_index,
    )


async def start_attempt(runner_id: int, attempt_id: int) -> Started:
    """The worker has taken it and may run it from now on."""
    [started] = await start([Held(attempt_id, runner_id)])
    return started


async def settle_result(runner_id: int, said: Result) -> Settled:
    """The last word on an attempt; a crash is charged and tried again elsewhere or later."""
    if said.status == "crashed":
        return await _settle_crash(runner_id, said)
    extras: dict[str, object] = {"outputs": said.outputs, "artifacts": said.artifacts}
    # Existing clients judge by the number: a handler that failed has exit code 1.
    is_failed_node = said.status == "failed" and said.exit_status == 0 and said.msg is None
    report = commit_report(
        attempt_id=said.task_id,
        runner_id=runner_id,
        exit_status=1 << 8 if is_failed_node else said.exit_status,
        msg=said.msg,
        outcome=said.outcome,
        op_id=said.op_id,
    )
    kept = {**said.facts, **{name: value for name, value in extras.items() if value}}
    report = msgspec.structs.replace(
        report,
        reason=said.reason or None,
        result=_encoder.encode(kept).decode() if kept else None,
    )
    [settled] = await settle([report])
    return settled


async def give_back(
    runner_id: int, attempt_id: int, *, reason: str, why: Literal["unknown", "later"]
) -> Settled:
    """The worker did not begin: free of charge. `unknown`: it is not asked for this task again."""
    report = abort_report(
        attempt_id=attempt_id,
        runner_id=runner_id,
        op_id=legacy_op_id(attempt_id, "refused"),
        reason=reason,
        charge=False,
        exclude=why == "unknown",
    )
    [settled] = await settle([report])
    return settled


async def accept_feedback(runner_id: int, said: Feedback) -> ReportAnswer:
    """Stages and fragments to the event log, output to S3; in this order, each once per frame."""
    logged = [chunk for chunk in said.chunks if chunk.channel in _LOGGED]
    others = [chunk for chunk in said.chunks if chunk.channel not in _LOGGED]
    answer = await _note(runner_id, said.task_id, _state_of(said))
    if answer is ReportAnswer.OK and others:
        answer = await _note(runner_id, said.task_id, {"chunks": others})
    if answer is ReportAnswer.OK and logged:
        answer = await _append(runner_id, said.task_id, logged)
    return answer


async def _settle_crash(runner_id: int, said: Result) -> Settled:
    report = failure_report(
        attempt_id=said.task_id,
        runner_id=runner_id,
        op_id=said.op_id or legacy_op_id(said.task_id, "crash"),
        reason=said.reason or f"ended by signal {said.signal}",
        died_by=said.signal,
    )
    [settled] = await settle([report])
    if settled.answer not in _TAKEN or settled.action in {"end", "requeue"}:
        return settled
    # Kept: a manager would try again by itself. A direct worker has let go of it.
    again = abort_report(
        attempt_id=said.task_id,
        runner_id=runner_id,
        op_id=legacy_op_id(said.task_id, "crash-requeue"),
        reason=report.reason or "",
        charge=False,
        exclude=False,
    )
    [back] = await settle([again])
    is_gone = settled.answer is ReportAnswer.OK_DUPLICATE and back.answer not in _TAKEN
    return settled if is_gone else back


def _state_of(said: Feedback) -> dict[str, object]:
    state: dict[str, object] = {
        "stage": said.stage,
        "exec_state": None if said.exec_state is None else said.exec_state.value,
        "progress": said.progress,
        "message": said.message,
        "metrics": said.metrics or None,
    }
    return {name: value for name, value in state.items() if value is not None}


async def _note(runner_id: int, attempt_id: int, data: dict[str, object]) -> ReportAnswer:
    if not data:
        return ReportAnswer.OK
    line = Progress(attempt_id, runner_id, _encoder.encode(data).decode())
    [answer] = await report_progress([line])
    return answer


async def _append(runner_id: int, attempt_id: int, chunks: list[Chunk]) -> ReportAnswer:
    held = (await find_held(runner_id, {attempt_id})).get(attempt_id)
    if held is None:
        return ReportAnswer.STALE_ATTEMPT
    for chunk in chunks:
        stream, offset = LogStream(chunk.channel), chunk.offset or 0
        try:
            await append_log_chunk(held.task_uuid, held.attempt, stream, offset, chunk.content)
        except StorageUnavailable:
            return ReportAnswer.RETRY_LATER
        except DomainError:
            return ReportAnswer.INVALID
    return ReportAnswer.OK
