"""Handlers of what a manager says about itself: hello, heartbeats, the end of its suite.

Pushes are hints that may get lost, so every heartbeat is answered with what a manager that missed
one would not know: its suite, a cancel, a shutdown, new configuration.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from django.conf import settings

from accounts.services.audit import arecord
from core.errors import Conflict, InvalidInput, PermissionDenied, Superseded
from managers.enums import ReleaseReason
from managers.services.early_pass import idle_managers
from managers.services.engagement import Failure
from managers.services.session_duty import Duty, Engaged, note_process, read_duties
from managers.services.session_engagement import (
    TROUBLES,
    complete_engagement,
    fail_engagement,
    return_to_suite,
)
from managers.services.session_suites import suite_messages
from mitosis_protocol import PROTOCOL_VERSION
from mitosis_protocol.durations import format_duration, format_nanoseconds
from mitosis_protocol.enums import AssignmentState, DesiredState, ManagerState
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.from_manager import Heartbeat, Hello, SuiteCompleted, SuiteFailed
from mitosis_protocol.to_manager import (
    CancelSuite,
    CancelTask,
    ConfigUpdate,
    Engagement,
    HeartbeatAck,
    Reconciliation,
    Shutdown,
    SuiteDrained,
    SuiteReportAck,
    ToManager,
    Welcome,
)
from tasks.services.heartbeat import SETTLE_S, Reconciled, reconcile
from tasks.services.manager_beats import Answered, ManagerBeat, beat
from websocket.peer import Peer

OLDEST_VERSION: Final = 1  # of the protocol that is still served
MAX_FORGERIES: Final = 10  # frames under another identity before the socket ends
STOP_REASON: Final = "cancelled"


class ProtocolBroken(Conflict):
    """Nothing more can be said on this socket."""

    code = ErrorCode.PROTOCOL_MISMATCH


async def on_hello(peer: Peer, message: Hello) -> Sequence[ToManager]:
    if message.protocol_version < OLDEST_VERSION:
        raise ProtocolBroken(f"protocol version {OLDEST_VERSION} or newer is needed")
    if message.manager_uuid is not None:
        await _check_identity(peer, message.manager_uuid)
    is_current = await note_process(
        manager_id=peer.manager_id,
        session_epoch=peer.session_epoch,
        process_id=message.process_id,
    )
    if not is_current:
        raise Superseded("a newer session of this manager took over")
    peer.speaks_for(message.process_id)
    duty = await _duty_after_return(peer, message)
    engaged = duty.engaged
    held = await reconcile(
        runner_id=peer.manager_id,
        attempt_ids=message.inventory,
        assignment_id=None if engaged is None else engaged.assignment_id,
        settle_s=0 if message.is_clean else SETTLE_S,
    )
    if engaged is None:
        idle_managers().note(peer.manager_id)
    return [await _welcome(peer, message, duty, held)]


async def on_heartbeat(peer: Peer, message: Heartbeat) -> Sequence[ToManager]:
    await _check_identity(peer, message.manager_uuid)
    duty, answered = await beat(
        ManagerBeat(
            manager_id=peer.manager_id,
            session_epoch=peer.session_epoch,
            state=message.state,
            metrics=msgspec.to_builtins(message.metrics),
            config_version=message.config_version,
            assignment_id=message.assignment_id,
            inventory=message.inventory,
        )
    )
    _note_idleness(peer, message, duty)
    answers: list[ToManager] = []
    if message.request_id is not None:
        answers.append(_ack(message.request_id, duty, answered))
    return [*answers, *_wishes(message, duty, answered), *await _suite_news(peer, message, duty)]


def _note_idleness(peer: Peer, message: Heartbeat, duty: Duty) -> None:
    """A manager that just became idle may be given work at once; one that stays so waits."""
    was_idle, peer.is_idle = peer.is_idle, message.state is ManagerState.IDLE
    if peer.is_idle and not was_idle and duty.engaged is None:
        idle_managers().note(peer.manager_id)


async def on_suite_completed(peer: Peer, message: SuiteCompleted) -> Sequence[ToManager]:
    is_news = await complete_engagement(
        manager_id=peer.manager_id,
        suite_uuid=message.suite_uuid,
        assignment_id=message.assignment_id,
    )
    return _suite_ack(message.request_id, success=is_news)


async def on_suite_failed(peer: Peer, message: SuiteFailed) -> Sequence[ToManager]:
    if message.phase == "cleanup":
        # The host has done what it could; it is free, and the log of the agent has the rest.
        is_news = await complete_engagement(
            manager_id=peer.manager_id,
            suite_uuid=message.suite_uuid,
            assignment_id=message.assignment_id,
        )
        return _suite_ack(message.request_id, success=is_news)
    is_news, is_blocked = await fail_engagement(
        manager_id=peer.manager_id,
        suite_uuid=message.suite_uuid,
        assignment_id=message.assignment_id,
        failure=Failure(TROUBLES[message.trouble], message.exit_code, message.stderr_tail),
    )
    return _suite_ack(message.request_id, success=is_news, is_blocked=is_blocked)


async def _check_identity(peer: Peer, said: object) -> None:
    """Whoever a body names has to be the token's owner."""
    if said == peer.manager_uuid:
        return
    peer.forgeries += 1
    await arecord(
        actor=peer.actor,
        action="manager.forged_identity",
        target=str(said),
        outcome="refused",
    )
    if peer.forgeries >= MAX_FORGERIES:
        raise ProtocolBroken(
            "too many frames in another manager's name", code=ErrorCode.PROTOCOL_IDENTITY_MISMATCH
        )
    raise PermissionDenied(
        "manager_uuid is not the token's", code=ErrorCode.PROTOCOL_IDENTITY_MISMATCH
    )


async def _duty_after_return(peer: Peer, message: Hello) -> Duty:
    duty = (await read_duties([peer.manager_id])).get(peer.manager_id)
    if duty is None:
        raise InvalidInput("this runner is no node manager")
    if duty.engaged is not None or message.suite_uuid is None:
        return duty
    await return_to_suite(manager_id=peer.manager_id, suite_uuid=message.suite_uuid)
    return (await read_duties([peer.manager_id]))[peer.manager_id]


async def _welcome(peer: Peer, message: Hello, duty: Duty, held: Reconciled) -> Welcome:
    engaged = duty.engaged
    suites = {} if engaged is None else await suite_messages([engaged.assignment_id])
    assigned = None if engaged is None else suites.get(engaged.assignment_id)
    return Welcome(
        request_id=message.request_id,
        protocol_version=PROTOCOL_VERSION,
        manager_uuid=peer.manager_uuid,
        session_epoch=peer.session_epoch,
        lease=_lease(),
        heartbeat_interval=_heartbeat_interval(duty),
        config_version=duty.config_version,
        desired_state=duty.desired_state,
        engagement=_engagement(engaged),
        suite_spec=None if assigned is None else assigned.suite_spec,
        held=_reconciliation(held),
    )


def _ack(request_id: int, duty: Duty, answered: Answered) -> HeartbeatAck:
    return HeartbeatAck(
        request_id=request_id,
        lease=_lease(),
        config_version=duty.config_version,
        desired_state=duty.desired_state,
        engagement=_engagement(duty.engaged),
        held=_reconciliation(answered.held),
    )


def _wishes(message: Heartbeat, duty: Duty, answered: Answered) -> list[ToManager]:
    """Cancels, shutdown and configuration that this manager has not acted on."""
    news: list[ToManager] = [
        CancelTask(task_uuid=task_uuid, reason=STOP_REASON) for task_uuid in answered.stop
    ]
    if duty.desired_state is DesiredState.SHUTDOWN:
        news.append(Shutdown(graceful=not duty.is_forced))
    if message.config_version is not None and message.config_version < duty.config_version:
        news.append(
            ConfigUpdate(
                lease_duration=format_duration(duty.lease_duration_s),
                heartbeat_interval=_heartbeat_interval(duty),
                version=duty.config_version,
            )
        )
    return news


async def _suite_news(peer: Peer, message: Heartbeat, duty: Duty) -> list[ToManager]:
    """What the manager's view of its engagement lacks."""
    engaged = duty.engaged
    is_idle = message.state is ManagerState.IDLE
    if engaged is None:
        return []
    if engaged.state is AssignmentState.CLEANUP:
        if is_idle and message.assignment_id is None:
            # It has cleaned up and its word about that got lost, or it restarted meanwhile.
            await complete_engagement(
                manager_id=peer.manager_id, suite_uuid=None, assignment_id=engaged.assignment_id
            )
            return []
        return [] if message.state is ManagerState.CLEANUP else [_farewell(engaged)]
    if not is_idle or message.assignment_id == engaged.assignment_id:
        return []
    return list((await suite_messages([engaged.assignment_id])).values())


def _farewell(engaged: Engaged) -> ToManager:
    reason = engaged.release_reason
    text = "" if reason is None else reason.value
    if reason is ReleaseReason.CANCELLED:
        # Which tasks have to stop is said one by one; whoever runs on may end in peace.
        return CancelSuite(suite_uuid=engaged.suite_uuid, reason=text, cancel_running_tasks=False)
    return SuiteDrained(
        assignment_id=engaged.assignment_id, suite_uuid=engaged.suite_uuid, reason=text
    )


def _suite_ack(
    request_id: int | None, *, success: bool, is_blocked: bool = False
) -> list[ToManager]:
    if request_id is None:
        return []
    return [SuiteReportAck(request_id=request_id, success=success, is_blocked=is_blocked)]


def _engagement(engaged: Engaged | None) -> Engagement | None:
    if engaged is None:
        return None
    reason = engaged.release_reason
    return Engagement(
        assignment_id=engaged.assignment_id,
        suite_uuid=engaged.suite_uuid,
        state=engaged.state,
        is_paused=engaged.is_paused,
        release_reason=None if reason is None else reason.value,
    )


def _reconciliation(held: Reconciled) -> Reconciliation:
    return Reconciliation(
        kept=held.kept,
        adopted=held.adopted,
        cancel=held.cancelled,
        settled=held.settled,
        revoked=held.revoked,
        missing=held.missing,
    )


def _lease() -> str:
    return format_nanoseconds(round(settings.MITOSIS.lease_ttl_s * 1e9))


def _heartbeat_interval(duty: Duty) -> str:
    # Whatever an operator wrote into the row: four beats have to fit the lease.
    policy = settings.MITOSIS
    seconds = min(duty.heartbeat_s or policy.heartbeat_s, policy.lease_ttl_s / 4)
    return format_nanoseconds(round(seconds * 1e9))
