"""One claimed task on its way into a direct worker's hands: sent, taken or refused, written down.

Owned by websocket.worker_duty. The start is recorded when the worker acks, before that for a task
that may run only once.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from accounts.services.audit import arecord
from core.counters import CMD_DISPATCH, CMD_RETRY
from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import Dispatch
from mitosis_protocol.enums import ReportAnswer
from tasks.rows import ClaimedTask
from tasks.services.direct import dispatch_of, give_back, start_attempt
from websocket.worker_holdings import Attempt, Holdings
from websocket.worker_peer import WorkerPeer
from websocket.worker_voice import Voice

_GONE: Final = frozenset({ReportAnswer.STALE_ATTEMPT, ReportAnswer.FORBIDDEN})


class Stops(Protocol):
    """What the duty does with an attempt that must not go on."""

    def stop_attempt(self, attempt_id: int, why: str = "cancelled") -> None: ...
    def let_go(self, attempt_id: int) -> None: ...


class Handover:
    """The dispatches of one session."""

    def __init__(
        self,
        peer: WorkerPeer,
        voice: Voice,
        held: Holdings,
        *,
        begin: Callable[[Coroutine[Any, Any, None]], object],
        duty: Stops,
    ) -> None:
        self._peer = peer
        self._voice = voice
        self._held = held
        self._begin = begin
        self._duty = duty

    async def begin(self, task: ClaimedTask) -> None:
        """Send it; what the worker answers comes later."""
        message = dispatch_of(task)
        attempt = Attempt(
            task.attempt_id,
            node_type=message.node_type,
            task_uuid=task.uuid,
            dispatched_at=asyncio.get_running_loop().time(),
        )
        if task.max_failures == 1:
            # At most one start: it is written down before the worker can know of the task.
            started = await start_attempt(self._peer.runner_id, task.attempt_id)
            if started.is_cancelled:
                reason = "cancelled before it was handed over"
                await give_back(self._peer.runner_id, attempt.id, reason=reason, why="later")
                return
        self._held.take(attempt)
        CMD_DISPATCH.of(self._peer.tenant.name, message.node_type).inc()
        attempt.dispatch_id = self._voice.insist(
            message,
            corr=attempt.corr,
            seq=attempt.next_number(),
            on_ack=lambda: self._taken(attempt, message),
            on_refusal=lambda code, reason: self._refused(attempt, message, code, reason),
        )

    def _taken(self, attempt: Attempt, message: Dispatch) -> None:
        attempt.dispatch_id = None
        self._begin(self._note_start(attempt, message))

    async def _note_start(self, attempt: Attempt, message: Dispatch) -> None:
        started = await start_attempt(self._peer.runner_id, attempt.id)
        if started.is_cancelled:
            self._duty.stop_attempt(attempt.id)
        elif started.answer in _GONE and attempt.id in self._held and not attempt.is_ending:
            # Not because its result overtook this: it went to somebody else meanwhile.
            self._duty.stop_attempt(attempt.id, "revoked")
            self._duty.let_go(attempt.id)
        await self._audit(message, "ok")

    def _refused(self, attempt: Attempt, message: Dispatch, code: ControlCode, reason: str) -> None:
        attempt.dispatch_id = None
        self._begin(self._give_back(attempt, message, code, reason))

    async def _give_back(
        self, attempt: Attempt, message: Dispatch, code: ControlCode, reason: str
    ) -> None:
        CMD_RETRY.of(code.value).inc()
        await give_back(
            self._peer.runner_id,
            attempt.id,
            reason=f"{code.value}: {reason}",
            why="unknown" if code is ControlCode.CMD_UNKNOWN else "later",
        )
        self._duty.let_go(attempt.id)
        await self._audit(message, code.value)

    async def _audit(self, message: Dispatch, outcome: str) -> None:
        await arecord(
            actor=self._peer.actor,
            action="cmd.dispatch",
            target=str(message.task_uuid),
            outcome=outcome,
            detail={
                "tenant": self._peer.tenant.name,
                "corr": str(message.task_id),
                "node_type": message.node_type,
            },
        )
