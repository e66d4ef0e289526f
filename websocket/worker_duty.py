"""What one direct worker is given: tasks within its capacity, stops, drains; and whether it lives.

Owned by websocket.worker_session. Asks for work when there is room for it: after a register, a
result, a hint, and every few seconds. The claim statement decides who gets what; a dispatch that
is never acked is not given to anybody else before the worker's lease or its own word says so.
"""

import asyncio
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, Final, Protocol

import msgspec
import structlog
from django.conf import settings

from accounts.services.audit import arecord
from core.counters import WS_CONN_ACTIVE, WS_HEARTBEAT_MISS
from core.errors import DatabaseUnavailable
from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import Ack, CancelCommand, Drain
from mitosis_protocol.control_plane import Envelope, Frame
from mitosis_protocol.enums import DesiredState
from mitosis_protocol.errors import ErrorCode
from tasks.rows import ClaimVerdict
from tasks.services.direct import claim_for_direct
from websocket.close_codes import CloseCode
from websocket.worker_handover import Handover
from websocket.worker_holdings import Attempt, Holdings
from websocket.worker_peer import WorkerPeer
from websocket.worker_voice import Voice
from workers.hints import HINTS, Install, StopAttempt, Uninstall, WorkWaits
from workers.services.control_plane import read_wish
from workers.services.departure import end_leaving_async

log = structlog.get_logger(__name__)

RETRY_S: Final = 1.0  # after trouble with the database
LOST_AFTER: Final = 3  # missed heartbeats: one is a warning, two stop new work
MAX_POLL_S: Final = 2.0  # tasks that become ready by themselves (backoff, upstream) send no hint


class Stage(IntEnum):
    """What this end has seen of the session."""

    OPEN = 0  # nothing yet: a handshake has to come
    KNOWN = 1  # the handshake was taken: a register has to come
    LIVE = 2  # work may flow


class Unkept(Exception):
    """A message could not be kept; its sender has to repeat it."""

    def __init__(self, code: ControlCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Close(Protocol):
    def __call__(self, code: CloseCode, reason: str, *, error: ErrorCode | None = None) -> None: ...


class Duty:
    """The scheduler's side of one session."""

    def __init__(
        self,
        peer: WorkerPeer,
        voice: Voice,
        *,
        begin: Callable[[Coroutine[Any, Any, None]], object],
        close: Close,
    ) -> None:
        self.peer = peer
        self.voice = voice
        self.held = Holdings()
        self.stage = Stage.OPEN
        self.max_parallel = 0
        self.pressure = ""  # why the worker's own state keeps work away
        self.wish = DesiredState.ACTIVE
        self._handover = Handover(peer, voice, self.held, begin=begin, duty=self)
        self._end = close
        self._misses = 0
        self._wake = asyncio.Event()
        self._beaten = asyncio.Event()
        self._is_counted = False

    # --- called by the handlers ---

    def go_live(self, max_parallel: int) -> None:
        """The register was taken: work may flow."""
        self.max_parallel = max_parallel
        self.stage = Stage.LIVE
        if not self._is_counted:
            self._is_counted = True
            WS_CONN_ACTIVE.of(self.peer.tenant.name).inc()
        self.note_beat()
        self.look()

    def note_beat(self) -> None:
        self._misses = 0
        self._beaten.set()

    def note_word(self) -> None:
        """Any frame counts until the handshake is through."""
        if self.stage is Stage.OPEN:
            self._beaten.set()

    def look(self) -> None:
        """Ask for work now rather than at the next poll."""
        self._wake.set()

    def put_under_pressure(self, reason: str) -> None:
        """No more work while there is a reason; the worker is told when that changes."""
        if reason == self.pressure:
            return
        was, self.pressure = self.pressure, reason
        if bool(was) != bool(reason):
            log.warning("worker.pressure", worker=str(self.peer.runner_uuid), reason=reason)
            self.voice.insist(Drain(reason=reason or was, is_lifted=not reason))
        self.look()

    def stop_attempt(self, attempt_id: int, why: str = "cancelled") -> None:
        """Tell the worker once per session; its acks are the voice's business."""
        attempt = self.held.find(attempt_id) or Attempt(attempt_id)
        if attempt.was_told_to_stop:
            return
        attempt.was_told_to_stop = True
        command = CancelCommand(
            task_id=attempt_id,
            why="revoked" if why == "revoked" else "cancelled",
            grace_s=settings.MITOSIS.cancel_grace_s,
        )
        self.voice.insist(command, corr=attempt.corr, seq=attempt.next_number())

    def let_go(self, attempt_id: int) -> None:
        """The worker does not hold it: whatever is still on its way there is taken back."""
        attempt = self.held.drop(attempt_id)
        if attempt is not None and attempt.dispatch_id is not None:
            self.voice.withdraw(attempt.dispatch_id)
        self.look()

    # --- called by the session ---

    def close(self) -> None:
        if self._is_counted:
            self._is_counted = False
            WS_CONN_ACTIVE.of(self.peer.tenant.name).dec()

    def hear(self, text: str) -> None:
        """A hint from another process."""
        try:
            hint = HINTS.decode(text)
        except msgspec.MsgspecError:
            log.warning("worker.strange_hint", worker=str(self.peer.runner_uuid))
            return
        if isinstance(hint, WorkWaits):
            self.look()
        elif self.stage is not Stage.LIVE:
            return
        elif isinstance(hint, StopAttempt):
            self.stop_attempt(hint.attempt_id)
        elif isinstance(hint, Install | Uninstall):
            self.voice.insist(hint.order)

    def stray_ack(self, frame: Frame) -> None:
        """An ack that nobody waits for. If it takes a dispatch we gave up on, it must not run."""
        corr = frame.envelope.corr
        if isinstance(frame.payload, Ack) and corr is not None and corr.isdecimal():
            attempt_id = int(corr)
            if attempt_id not in self.held and not self.held.has_heard(attempt_id, 1):
                self.stop_attempt(attempt_id, "revoked")

    async def note_forgery(self, envelope: Envelope, reason: str) -> None:
        """Written down before the socket ends."""
        await arecord(
            actor=self.peer.actor,
            action="worker.forged_identity",
            target=envelope.sender.id,
            outcome=ControlCode.SESSION_DENIED.value,
            detail={"tenant": envelope.tenant, "type": envelope.type.value, "reason": reason},
        )

    async def hand_out(self) -> None:
        """Claim and dispatch as long as the socket lives."""
        while True:
            await _within(self._wake, min(MAX_POLL_S, settings.MITOSIS.idle_poll_s))
            self._wake.clear()
            if self.stage is not Stage.LIVE:
                continue
            try:
                await self._fill()
            except DatabaseUnavailable:
                await asyncio.sleep(RETRY_S)
                self.look()

    async def watch_beats(self) -> None:
        """The ladder of missed heartbeats: warn, no more work, lost."""
        policy = settings.MITOSIS
        if not await self._beat_within(policy.handshake_s):
            self._end(CloseCode.PROTOCOL, "no handshake in time", error=ErrorCode.SESSION_DENIED)
            return
        while True:
            # Half an interval of grace: a beat that is a little late is not a missed one.
            wait_s = policy.heartbeat_s * (1 if self._misses else 1.5)
            if await self._beat_within(wait_s):
                continue
            self._misses += 1
            worker = str(self.peer.runner_uuid)
            WS_HEARTBEAT_MISS.of(self.peer.tenant.name, worker).inc()
            log.warning("worker.heartbeat_missed", worker=worker, missed=self._misses)
            if self._misses >= LOST_AFTER:
                # The lease decides when its tasks go to others, not this.
                self._end(CloseCode.OVERLOAD, "heartbeats missed", error=ErrorCode.REQUEST_TIMEOUT)
                return

    # --- handing out ---

    @property
    def is_degraded(self) -> bool:
        return self._misses >= LOST_AFTER - 1

    @property
    def room(self) -> int:
        """How many more attempts the worker may be given now."""
        if self.pressure or self.is_degraded or self.wish is not DesiredState.ACTIVE:
            return 0
        return max(0, self.max_parallel - len(self.held))

    async def _fill(self) -> None:
        claim = await claim_for_direct(
            runner_id=self.peer.runner_id,
            session_epoch=self.peer.session_epoch,
            want=self.room,
        )
        await self._follow_wish(is_inactive=claim.verdict is ClaimVerdict.INACTIVE)
        for task in claim.tasks:
            await self._handover.begin(task)
        if claim.tasks and self.room:
            self.look()

    async def _follow_wish(self, *, is_inactive: bool) -> None:
        """Asked to leave or to pause: told once; an end comes when nothing is held."""
        wish = await read_wish(self.peer.runner_id) if is_inactive else DesiredState.ACTIVE
        was, self.wish = self.wish, wish
        if wish is DesiredState.SHUTDOWN and not len(self.held):
            await end_leaving_async(self.peer.runner_id)
        if wish is was:
            return
        is_active = wish is DesiredState.ACTIVE
        self.voice.insist(
            Drain(
                reason=f"the worker's desired state is {wish.value}",
                is_lifted=is_active,
                is_final=wish is DesiredState.SHUTDOWN,
            )
        )
        if is_active:
            self.look()

    async def _beat_within(self, timeout_s: float) -> bool:
        self._beaten.clear()
        return await _within(self._beaten, timeout_s)


async def _within(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether it is set in time. Not `wait_for`: before Python 3.12 that forgets a cancellation
    which arrives together with the event, and the socket would never end.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
