"""The socket of one direct worker: frames checked, put in order and handed over.

Handlers are in websocket.worker_inbound, the work itself is handed out by websocket.worker_duty.
Messages about one attempt are handled one after the other, all others side by side, so a slow
statement never stands before a heartbeat. Made by websocket.worker_presence.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

import msgspec
import structlog
from typing_extensions import override

from core.counters import WS_FRAME_BYTES
from core.errors import DomainError
from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import (
    Ack,
    Error,
    Feedback,
    Handshake,
    Heartbeat,
    Payload,
    Register,
    Result,
)
from mitosis_protocol.control_plane import Frame, FrameRefused, open_frame
from mitosis_protocol.errors import ErrorCode
from websocket.auth import Send
from websocket.close_codes import CloseCode
from websocket.connection import Connection, Limits
from websocket.rate import Bucket
from websocket.worker_duty import Duty, Stage, Unkept
from websocket.worker_errors import close_code_of, code_of
from websocket.worker_holdings import Attempt
from websocket.worker_inbound import HANDLERS
from websocket.worker_peer import WorkerPeer
from websocket.worker_streams import Place, Remembered
from websocket.worker_voice import Voice, is_verbose, log_fields

log = structlog.get_logger(__name__)

MAX_BEATS: Final = 4  # heartbeats of one socket under way; more are a client gone wrong
_NEEDS: Final[dict[type[Payload], Stage]] = {
    Handshake: Stage.OPEN,
    Register: Stage.KNOWN,
    Error: Stage.OPEN,
}


class WorkerSession(Connection):
    """A direct worker's connection after its accept."""

    def __init__(self, peer: WorkerPeer, send: Send, *, limits: Limits, bucket: Bucket) -> None:
        super().__init__(peer, send, limits=limits, bucket=bucket)
        self.peer = peer
        self._voice = Voice(peer, self._outbound.put, self._unanswered)
        self._duty = Duty(peer, self._voice, begin=self._begin, close=self.close)
        self._remembered = Remembered()
        self._is_deaf = False  # about to be closed for what it said
        self._tasks: set[asyncio.Task[None]] = set()
        self._beats: set[asyncio.Task[None]] = set()

    @override
    def companions(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._guarded(self._duty.hand_out()), self._guarded(self._duty.watch_beats()))

    @override
    def under_way(self) -> Iterable[asyncio.Task[None]]:
        self._voice.close()
        self._duty.close()
        return self._tasks | self._beats

    @override
    def explain(self, error: ErrorCode, reason: str) -> None:
        self._voice.say(Error(code=code_of(error), message=reason))

    @override
    def hear(self, hint: str) -> None:
        self._duty.hear(hint)

    @override
    def take(self, data: str | bytes) -> None:
        WS_FRAME_BYTES.of(self.peer.tenant.name, "in").inc(len(data))
        if self._is_deaf:
            return
        try:
            frame = open_frame(data)
        except FrameRefused as refused:
            self._voice.say(refused.error)
            if refused.error.code is ControlCode.PROTOCOL_TOO_LARGE:
                self.close(CloseCode.TOO_LARGE, "frame too large")
            return
        if is_verbose():
            log.debug(
                "worker.heard", **self.peer.known_as, **log_fields(frame.envelope, frame.payload)
            )
        if not self._is_welcome(frame):
            return
        self._duty.note_word()
        key = (frame.envelope.id, frame.envelope.corr)
        if isinstance(frame.payload, Ack):
            if not self._voice.acked(frame.payload.for_id):
                self._duty.stray_ack(frame)
        elif self._remembered.is_known(key):
            answer = self._remembered.answer_to(key)
            if answer is not None:
                self._voice.repeat(answer)
        else:
            self._remembered.note(key)
            self._route(frame)

    def _unanswered(self, message_id: str) -> None:
        """Six sendings without an ack on a socket that lives: the worker has to start afresh.

        Nothing is requeued here. What it does not name when it registers again was never begun.
        """
        log.warning("worker.unresponsive", **self.peer.known_as, message=message_id)
        self._voice.say(
            Error(code=ControlCode.DISPATCH_UNAVAILABLE, message="no ack", for_id=message_id)
        )
        self.close(CloseCode.OVERLOAD, "a message was not acked")

    def _is_welcome(self, frame: Frame) -> bool:
        """Whether it comes from whom the token says, is for us, and comes in its time."""
        envelope, payload = frame
        forgery = self._forgery(frame)
        if forgery is not None:
            # A client of ours never does this; whoever does is not heard any further.
            self._is_deaf = True
            self._deny(envelope.id, forgery)
            self._begin(self._end_for_forgery(frame, forgery))
            return False
        if type(payload) not in HANDLERS:
            unknown = f"{envelope.type} is not for the scheduler"
            self._complain(frame, ControlCode.CMD_UNKNOWN, unknown)
            return False
        if self._duty.stage < _NEEDS.get(type(payload), Stage.LIVE):
            missing = "handshake" if self._duty.stage is Stage.OPEN else "register"
            self._deny(envelope.id, f"{envelope.type} before the {missing} was acked")
            return False
        return True

    async def _end_for_forgery(self, frame: Frame, reason: str) -> None:
        try:
            await self._duty.note_forgery(frame.envelope, reason)
        finally:
            self.close(CloseCode.PROTOCOL, reason)

    def _forgery(self, frame: Frame) -> str | None:
        envelope = frame.envelope
        if envelope.tenant != self.peer.tenant.name:
            return "tenant is not the token's"
        if envelope.sender.role != "worker" or envelope.sender.id != str(self.peer.runner_uuid):
            return "sender is not the token's"
        return None

    def _route(self, frame: Frame) -> None:
        payload = frame.payload
        if isinstance(payload, Feedback | Result):
            self._queue(frame, payload)
            return
        group = self._beats if isinstance(payload, Heartbeat) else self._tasks
        most = MAX_BEATS if isinstance(payload, Heartbeat) else self._limits.in_flight
        if len(group) >= most:
            self._complain(frame, ControlCode.PROTOCOL_OVERLOAD, "too much under way", again=True)
            return
        _ = self._spawn(self._handle(frame), group)

    def _queue(self, frame: Frame, payload: Feedback | Result) -> None:
        """Its number first, then its turn behind what came before about the same attempt."""
        seq, corr = frame.envelope.seq, frame.envelope.corr
        if seq is None or corr != str(payload.task_id):
            malformed = "corr has to be the task_id, and seq a number"
            self._complain(frame, ControlCode.PROTOCOL_MALFORMED, malformed)
            return
        if len(self._tasks) >= self._limits.in_flight:
            # Before its number is taken: what follows it will be told to wait for it.
            self._complain(frame, ControlCode.PROTOCOL_OVERLOAD, "too much under way", again=True)
            return
        attempt = self._duty.held.find(payload.task_id)
        if attempt is None:
            self._meet_strange(frame, payload, seq)
            return
        place = attempt.stream.admit(seq)
        if place is Place.REPEATED:
            self._confirm(frame, Ack(for_id=frame.envelope.id, duplicate=True))
        elif place is Place.GAP:
            self._complain_about_gap(frame, attempt)
        else:
            attempt.is_ending = isinstance(payload, Result)
            work = self._handle_in_turn(frame, attempt, attempt.tail, seq)
            attempt.tail = self._spawn(work, self._tasks)

    def _meet_strange(self, frame: Frame, payload: Feedback | Result, seq: int) -> None:
        """About an attempt this session does not hold: it ended here, or is from before."""
        if self._duty.held.has_heard(payload.task_id, seq):
            self._confirm(frame, Ack(for_id=frame.envelope.id, duplicate=True))
        elif isinstance(payload, Result):
            # The fence decides: a late result may still be the first one.
            self._begin(self._handle(frame))
        else:
            self._complain(frame, ControlCode.SESSION_STALE_BINDING, "not held by this worker")

    async def _handle_in_turn(
        self, frame: Frame, attempt: Attempt, before: asyncio.Task[None] | None, seq: int
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        if attempt.stream.expect <= seq:
            # The one before could not be kept: this one has to come again behind it.
            attempt.is_ending = False
            self._complain_about_gap(frame, attempt)
        elif not await self._handle(frame):
            attempt.stream.fail(seq)
            attempt.is_ending = False

    async def _handle(self, frame: Frame) -> bool:
        """Whether the message is settled; otherwise its repetition is welcome."""
        try:
            # What was sent to the database goes on and may succeed: a repeat finds that out.
            async with asyncio.timeout(self._limits.answer_s):
                answer = await HANDLERS[type(frame.payload)](self._duty, frame)
        except Unkept as error:
            self._complain(frame, error.code, str(error), again=True)
            return False
        except DomainError as error:
            self._complain(frame, code_of(error.code), error.message, again=error.retryable)
            if (code := close_code_of(error)) is not None:
                self.close(code, error.message)
            return not error.retryable
        except TimeoutError:
            self._complain(frame, ControlCode.TIMEOUT, "not handled in time", again=True)
            return False
        except Exception:  # a shell edge: one message fails, the socket lives
            log.exception("worker.handler_crashed", **self.peer.known_as, type=frame.envelope.type)
            self._complain(frame, ControlCode.INTERNAL, "the scheduler failed", again=True)
            return False
        if answer is not None or frame.envelope.wants_ack:
            self._confirm(frame, answer or Ack(for_id=frame.envelope.id))
        return True

    def _confirm(self, frame: Frame, answer: Payload) -> None:
        sent = self._voice.say(answer, corr=frame.envelope.corr)
        self._remembered.note((frame.envelope.id, frame.envelope.corr), sent)

    def _complain_about_gap(self, frame: Frame, attempt: Attempt) -> None:
        expect = attempt.stream.expect
        self._refuse(frame, Error(code=ControlCode.RESULT_SEQ_GAP, expect=expect, retryable=True))

    def _complain(
        self, frame: Frame, code: ControlCode, message: str, *, again: bool = False
    ) -> None:
        """`again`: it was not kept, and the same message may be sent once more."""
        self._refuse(frame, Error(code=code, message=message[:1024], retryable=again))

    def _refuse(self, frame: Frame, error: Error) -> None:
        envelope, payload = frame
        task_id = getattr(payload, "task_id", None)
        about = msgspec.structs.replace(error, for_id=envelope.id, task_id=task_id)
        sent = self._voice.say(about, corr=envelope.corr)
        key = (envelope.id, envelope.corr)
        if error.retryable:
            self._remembered.forget(key)
        else:
            self._remembered.note(key, sent)
        log.info("worker.refused", **self.peer.known_as, **log_fields(envelope, error))

    def _deny(self, message_id: str, reason: str) -> None:
        self._voice.say(Error(code=ControlCode.SESSION_DENIED, message=reason, for_id=message_id))

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run something that ends with the socket."""
        _ = self._spawn(work, self._tasks)

    def _spawn(
        self, work: Coroutine[Any, Any, Any], group: set[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guarded(work))
        group.add(task)
        task.add_done_callback(group.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except DomainError as error:
            log.info("worker.background_refused", **self.peer.known_as, reason=error.message)
            if (code := close_code_of(error)) is not None:
                self.close(code, error.message)
        except Exception:  # a shell edge: a bug ends one socket, with a trace
            log.exception("worker.background_crashed", **self.peer.known_as)
            self.close(CloseCode.INTERNAL, "internal error")
