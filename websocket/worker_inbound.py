"""What each message of a direct worker makes the coordinator do: one short function, one service.

HANDLERS maps every payload of FromDirectWorker to its handler; a handler returns the answer, or
None where an ack is enough and only sent when it was asked for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, cast

from django.conf import settings

from accounts.services.audit import arecord
from core.counters import PKG_OPS, RESULT_LATENCY_MS
from core.errors import Conflict, PermissionDenied, Superseded
from mitosis_protocol import PROTOCOL_VERSION
from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import (
    Ack,
    Error,
    Feedback,
    Handshake,
    Heartbeat,
    Payload,
    PkgEvent,
    Register,
    Result,
    SessionTerms,
)
from mitosis_protocol.control_plane import Frame
from mitosis_protocol.enums import ReportAnswer
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.to_manager import Reconciliation
from runners.services.sessions import renew_leases
from tasks.services.direct import accept_feedback, settle_result
from tasks.services.heartbeat import Reconciled, reconcile
from websocket.worker_duty import Duty, Stage, Unkept
from websocket.worker_holdings import Attempt
from websocket.worker_peer import WorkerPeer
from websocket.worker_streams import Stream
from workers.services.certificates import MtlsRequired
from workers.services.control_plane import (
    check_resources,
    note_package,
    note_process,
    note_register,
    note_resources,
)

Handler = Callable[[Duty, Frame], Awaitable[Payload | None]]

OLDEST_VERSION: Final = 1  # of the protocol that is still served
_TAKEN: Final = frozenset({ReportAnswer.OK, ReportAnswer.OK_DUPLICATE})


async def on_handshake(duty: Duty, frame: Frame) -> Ack:
    """Everything here was proven by the upgrade; the worker must only agree with it."""
    said = cast("Handshake", frame.payload)
    peer, policy = duty.peer, settings.MITOSIS
    if said.protocol_version < OLDEST_VERSION:
        raise _Unserved(f"protocol version {OLDEST_VERSION} or newer is needed")
    if said.worker_id != peer.runner_uuid:
        raise PermissionDenied("worker_id is not the token's", code=ErrorCode.SESSION_DENIED)
    if settings.MTLS_HEADER and said.auth != "mtls":
        raise MtlsRequired("this installation wants a client certificate")
    if not peer.tenant.has_consented:
        raise PermissionDenied(
            f"the group {peer.tenant.name} has not accepted this worker",
            code=ErrorCode.AUTH_CONSENT_PENDING,
        )
    await note_process(
        runner_id=peer.runner_id, session_epoch=peer.session_epoch, process_id=said.process_id
    )
    duty.stage = max(duty.stage, Stage.KNOWN)
    terms = SessionTerms(
        session_id=peer.session_id,
        tenant=peer.tenant.name,
        lease_s=policy.lease_ttl_s,
        heartbeat_interval_s=policy.heartbeat_s,
        drain_mem_pct=peer.drain_mem_pct,
        drain_disk_pct=peer.drain_disk_pct,
        protocol_version=PROTOCOL_VERSION,
    )
    return Ack(for_id=frame.envelope.id, session=terms)


async def on_register(duty: Duty, frame: Frame) -> Ack:
    """Only what is listed is bound to the new session; the rest was lost with the old one."""
    said = cast("Register", frame.payload)
    peer = duty.peer
    check_resources(peer.runner_uuid, said.resources)
    await note_register(runner_id=peer.runner_id, session_epoch=peer.session_epoch, said=said)
    # The old socket is gone, and with it whatever was on its way to the worker.
    held = await reconcile(
        runner_id=peer.runner_id,
        attempt_ids=[one.task_id for one in said.inventory],
        settle_s=0,
    )
    numbers = {one.task_id: one.next_seq for one in said.inventory}
    for attempt_id in (*held.kept, *held.adopted, *held.cancelled):
        if attempt_id not in duty.held:
            duty.held.take(Attempt(attempt_id, stream=Stream(numbers.get(attempt_id, 1)), said=1))
    duty.go_live(said.capabilities.concurrency.max_parallel)
    _follow(duty, held)
    return Ack(for_id=frame.envelope.id, held=_reconciliation(held))


async def on_heartbeat(duty: Duty, frame: Frame) -> Ack:
    said = cast("Heartbeat", frame.payload)
    peer, policy = duty.peer, settings.MITOSIS
    renewed = await renew_leases({peer.runner_id: peer.session_epoch}, ttl_s=policy.lease_ttl_s)
    if peer.runner_id not in renewed:
        raise Superseded("a newer session of this worker took over")
    duty.note_beat()
    duty.put_under_pressure(_pressure(peer, said))
    # A worker that says nothing is taken at this session's word: a claim whose dispatch was never
    # sent must not live on with its heartbeats.
    inflight = duty.held.ids() if said.inflight is None else said.inflight
    held = await reconcile(
        runner_id=peer.runner_id, attempt_ids={*inflight, *duty.held.in_motion()}
    )
    _follow(duty, held)
    return Ack(
        for_id=frame.envelope.id,
        held=_reconciliation(held),
        lease_s=policy.lease_ttl_s,
    )


async def on_feedback(duty: Duty, frame: Frame) -> None:
    said = cast("Feedback", frame.payload)
    answer = await accept_feedback(duty.peer.runner_id, said)
    _check(answer)


async def on_result(duty: Duty, frame: Frame) -> Ack:
    said = cast("Result", frame.payload)
    peer = duty.peer
    check_resources(peer.runner_uuid, said.artifacts)
    attempt = duty.held.find(said.task_id)
    task_uuid = None if attempt is None else attempt.task_uuid
    # Before the end of the task: whoever waits for it may refer to them at once.
    await note_resources(runner_id=peer.runner_id, resources=said.artifacts, task_uuid=task_uuid)
    settled = await settle_result(peer.runner_id, said)
    if settled.answer not in _TAKEN:
        if settled.answer is not ReportAnswer.RETRY_LATER:
            duty.let_go(said.task_id)
        _check(settled.answer)
    if attempt is not None and attempt.dispatched_at is not None:
        took_s = asyncio.get_running_loop().time() - attempt.dispatched_at
        RESULT_LATENCY_MS.of(peer.tenant.name, attempt.node_type).observe(took_s * 1000)
    duty.held.end(said.task_id, frame.envelope.seq or 1)
    duty.let_go(said.task_id)
    is_repeated = settled.answer is ReportAnswer.OK_DUPLICATE
    return Ack(for_id=frame.envelope.id, duplicate=is_repeated, answer=settled.answer.value)


async def on_error(duty: Duty, frame: Frame) -> None:
    """The worker refuses one of our messages."""
    said = cast("Error", frame.payload)
    if said.for_id is not None:
        duty.voice.refused(said.for_id, said.code, said.message)


async def on_pkg_event(duty: Duty, frame: Frame) -> None:
    said = cast("PkgEvent", frame.payload)
    peer = duty.peer
    await note_package(runner_id=peer.runner_id, session_epoch=peer.session_epoch, said=said)
    PKG_OPS.of(peer.tenant.name, said.op, said.status).inc()
    await arecord(
        actor=peer.actor,
        action=f"package.{said.op}.{said.status}",
        target=str(peer.runner_uuid),
        outcome="ok" if said.code is None else said.code.value,
        detail={
            "tenant": peer.tenant.name,
            "corr": str(said.op_id),
            "name": said.name,
            "version": said.version,
            "message": said.message[:512],
        },
    )


async def on_ack(duty: Duty, frame: Frame) -> None:
    """Settled by the session before it gets here: an ack is never handled twice."""


HANDLERS: Final[Mapping[type[Payload], Handler]] = {
    Handshake: on_handshake,
    Register: on_register,
    Ack: on_ack,
    Heartbeat: on_heartbeat,
    Feedback: on_feedback,
    Result: on_result,
    Error: on_error,
    PkgEvent: on_pkg_event,
}


class _Unserved(Conflict):
    """A version of the protocol that we cannot speak."""

    code = ErrorCode.PROTOCOL_MISMATCH


def _check(answer: ReportAnswer) -> None:
    if answer is ReportAnswer.RETRY_LATER:
        raise Unkept(ControlCode.INTERNAL, "not kept; send it again")
    if answer is ReportAnswer.INVALID:
        raise _Stale("nobody knows this attempt, or it cannot take this any more")
    if answer not in _TAKEN:
        raise _Stale("not held by this worker any more")


class _Stale(Conflict):
    code = ErrorCode.SESSION_STALE_BINDING


def _follow(duty: Duty, held: Reconciled) -> None:
    """Bring the session's memory in line with what the database said."""
    for attempt_id in (*held.revoked, *held.missing, *held.settled):
        duty.let_go(attempt_id)
    for attempt_id in held.cancelled:
        duty.stop_attempt(attempt_id)
    for attempt_id in held.revoked:
        duty.stop_attempt(attempt_id, "revoked")


def _reconciliation(held: Reconciled) -> Reconciliation:
    return Reconciliation(
        kept=held.kept,
        adopted=held.adopted,
        cancel=held.cancelled,
        settled=held.settled,
        revoked=held.revoked,
        missing=held.missing,
    )


def _pressure(peer: WorkerPeer, said: Heartbeat) -> str:
    """Why a worker should not get more work; empty when it may."""
    if (said.mem_pct or 0) >= peer.drain_mem_pct:
        return f"memory is at {said.mem_pct:.0f} %"
    if (said.disk_pct or 0) >= peer.drain_disk_pct:
        return f"disk is at {said.disk_pct:.0f} %"
    return "" if said.healthy else "the worker says that it is not healthy"
