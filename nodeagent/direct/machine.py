"""The functional core of a direct worker's session: events in, effects out, no I/O and no clock.

States and their edges are `mitosis_protocol.control_codes.WORKER_SESSION`. Work in hand outlives
the connection: a new session lists it in its register, and what the coordinator did not ack before
is sent again. Driven by `session`; every row of the table has a unit test.
"""

from collections.abc import Callable
from typing import Final

from mitosis_protocol.control_codes import WORKER_SESSION, ControlCode, WorkerSessionState
from mitosis_protocol.control_payloads import (
    Ack,
    Error,
    Handshake,
    Heartbeat,
    InstalledPackage,
    Payload,
    PkgEvent,
    Register,
)
from mitosis_protocol.control_plane import Frame
from mitosis_protocol.limits import HEARTBEAT_INTERVAL_S
from mitosis_protocol.to_manager import Reconciliation
from nodeagent.direct import said
from nodeagent.direct.drains import Drains
from nodeagent.direct.events import (
    Connect,
    Disconnect,
    Effect,
    Ended,
    Event,
    HandedBack,
    Heard,
    HostEvent,
    Left,
    LinkEnd,
    Lost,
    Measured,
    Message,
    Opened,
    PackageTold,
    Quit,
    Resources,
    Said,
    Send,
    Settled,
    Stop,
    Tick,
    Traits,
)
from nodeagent.direct.hand import Hand
from nodeagent.direct.numbers import Numbers
from nodeagent.direct.orders import Orders
from nodeagent.direct.streams import Deliveries

S = WorkerSessionState

BACKOFF_BASE_S: Final = 0.5
BACKOFF_MAX_S: Final = 30.0
# More than the usual pause: for one who asked too much, or waits to be accepted by people.
PATIENCE_S: Final = 5.0
_PATIENT: Final = frozenset({LinkEnd.OVERLOAD, LinkEnd.DENIED})
# Beats without an answer after which the connection is not worth waiting for.
MISSED_BEATS: Final = 3
# Sessions taken from us in a row before we believe that somebody has our identity.
MAX_SUPERSEDED: Final = 3
HEALTHY_S: Final = 30.0

_ENDS: Final = {
    ControlCode.AUTH_INVALID_TOKEN: "the token is not accepted",
    ControlCode.AUTH_MTLS_REQUIRED: "the coordinator wants a client certificate",
    ControlCode.PROTOCOL_VERSION: "the coordinator speaks another version",
}


class Session:
    """One worker's session, from its first connection to its last."""

    def __init__(self, traits: Traits, *, chance: Callable[[], float]) -> None:
        self.traits = traits
        self.state = S.NEW
        self.tenant = traits.tenant
        self.session_id: str | None = None
        self.hand = Hand(self._new_id)
        self.resources: Resources = {}
        self.packages: list[InstalledPackage] = []
        self.drains = Drains()
        self.numbers = Numbers()
        self.load = Measured(0.0, 0.0)
        self.heartbeat_s: float = HEARTBEAT_INTERVAL_S
        self._chance = chance
        # What builds the session, and what needs it.
        self._greetings = Deliveries()
        self._deliveries = Deliveries()
        self._orders = Orders(traits, self.hand, self.drains, self.resources)
        self._is_connecting = False
        self._is_given_up = False
        self._is_fresh = True
        self._failures = 0
        self._superseded = 0
        self._missed = 0
        self._numbers = 0
        self._wait_until = 0.0
        self._bound_at = 0.0
        self._beat_at: float | None = None

    # --- the door ---------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """What has to be done about `event`."""
        effects = [] if self.state is S.CLOSED else self._react(event, now)
        self.numbers.watch(event, effects, now)
        return effects + self._flush(now)

    def wake_at(self) -> float | None:
        """When the next Tick is wanted, if nothing else happens before."""
        if self.state in (S.NEW, S.BACKOFF):
            return self._wait_until if not self._is_connecting else None
        if self._is_given_up:
            return None
        wakes = [self._greetings.wake_at, self._beat_at]
        if self.is_working:
            wakes += [self._deliveries.wake_at, self.hand.wake_at]
        return min((wake for wake in wakes if wake is not None), default=None)

    @property
    def is_working(self) -> bool:
        return self.state in (S.HEARTBEATING, S.DRAINING)

    def _react(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Tick():
                return self._tick(now)
            case Opened():
                return self._opened()
            case Lost():
                return self._lost(event, now)
            case Heard():
                return self._heard(event.frame, now)
            case _:
                return self._react_to_host(event, now)

    def _react_to_host(self, event: HostEvent, now: float) -> list[Effect]:
        match event:
            case Said():
                self.hand.say(event.feedback)
            case Ended():
                self.hand.end(event.result)
            case PackageTold():
                self._put(event.event)
            case HandedBack():
                return self._hand_back(event)
            case Measured():
                return self._measured(event, now)
            case Left():
                return self._leave(event, now)
        return []

    # --- connecting -------------------------------------------------------------------------

    def _tick(self, now: float) -> list[Effect]:
        if self.state is S.BACKOFF and now >= self._wait_until:
            self._move(S.NEW)
        if self.state is S.NEW:
            if self._is_connecting or now < self._wait_until:
                return []
            self._is_connecting = True
            return [Connect()]
        if self._is_hopeless(now):
            # Silent from here on: the rest is the next session's.
            self._is_given_up = True
            return [Disconnect("no acks any more")]
        if self._beat_at is not None and now >= self._beat_at:
            return self._beat(now)
        return []

    def _opened(self) -> list[Effect]:
        self._is_connecting = False
        self._is_given_up = False
        self._move(S.HANDSHAKING)
        self._greet(said.handshake(self.traits, self.session_id))
        return []

    def _lost(self, event: Lost, now: float) -> list[Effect]:
        self._is_connecting = False
        self._beat_at = None
        self._greetings.clear()
        self._deliveries.keep_only(PkgEvent)
        # A session that lived for a while was not taken by a twin: we had been silent for too long.
        was_taken = event.end is LinkEnd.SUPERSEDED and now - self._bound_at < HEALTHY_S
        self._superseded = self._superseded + 1 if was_taken else 0
        if event.end is LinkEnd.REFUSED:
            return self._quit(event.reason, ControlCode.AUTH_INVALID_TOKEN)
        if event.end is LinkEnd.UNPROVEN:
            code = ControlCode.AUTH_MTLS_REQUIRED
            return self._quit(f"{_ENDS[code]}: {event.reason}", code)
        if self._superseded >= MAX_SUPERSEDED:
            return self._quit(event.reason, ControlCode.SESSION_SUPERSEDED)
        self._failures += 1
        ceiling = min(BACKOFF_MAX_S, BACKOFF_BASE_S * 2.0 ** min(self._failures - 1, 16))
        floor = PATIENCE_S if event.end in _PATIENT else 0.05
        self._wait_until = now + floor + self._chance() * ceiling
        self._move(S.BACKOFF)
        return []

    def _accepted(self, ack: Ack) -> list[Effect]:
        """The handshake was acked."""
        if ack.session is None:
            return self._quit("the handshake was acked without terms", ControlCode.SESSION_DENIED)
        self.session_id = ack.session.session_id
        self.tenant = ack.session.tenant
        self.heartbeat_s = ack.session.heartbeat_interval_s
        self.drains.agree(ack.session)
        self._move(S.REGISTERED)
        self._greet(
            said.register(
                self.traits,
                packages=self.packages,
                held=self.hand.next_seqs(),
                resources=self.resources,
                is_clean=self._is_fresh,
            )
        )
        return []

    def _bound(self, ack: Ack, now: float) -> list[Effect]:
        """The register was acked: work may come, and what was not acked before goes out again."""
        self._is_fresh = False
        self._failures = 0
        self._missed = 0
        self._bound_at = now
        self._move(S.HEARTBEATING)
        effects = self._reconcile(ack.held)
        self.hand.restart()
        if self.drains:
            self._move(S.DRAINING)
        return effects + self._beat(now)

    # --- what is heard ----------------------------------------------------------------------

    def _heard(self, frame: Frame, now: float) -> list[Effect]:
        envelope, payload = frame
        if isinstance(payload, Ack):
            return self._on_ack(payload, now)
        if isinstance(payload, Error):
            return self._on_error(payload, now)
        obeyed = self._orders.obey(frame, is_working=self.is_working)
        if obeyed.news is not None:
            self._put(obeyed.news)
        self._follow_drains()
        answer = Send(self._message(obeyed.answer, corr=envelope.corr))
        return [answer, *obeyed.effects, *self._quit_if_done()]

    def _on_ack(self, ack: Ack, now: float) -> list[Effect]:
        payload = self._greetings.settle(ack.for_id) or self._deliveries.settle(ack.for_id)
        if isinstance(payload, Handshake) and self.state is S.HANDSHAKING:
            return self._accepted(ack)
        if isinstance(payload, Register) and self.state is S.REGISTERED:
            return self._bound(ack, now)
        if isinstance(payload, Heartbeat):
            self._missed = 0
            return self._reconcile(ack.held)
        return self.hand.acked(ack) + self._quit_if_done()

    def _on_error(self, error: Error, now: float) -> list[Effect]:
        if error.code is ControlCode.AUTH_INVALID_TOKEN:
            return self._quit(f"{_ENDS[error.code]}: {error.message}", error.code)
        if error.code is ControlCode.SESSION_SUPERSEDED:
            return [Disconnect("superseded")]
        if self.state in (S.HANDSHAKING, S.REGISTERED) and not error.retryable:
            text = f"{error.code}: {error.message}"
            return self._quit(text, error.code) if error.code in _ENDS else [Disconnect(text)]
        if error.for_id is not None and not error.retryable:
            self._deliveries.settle(error.for_id)
        return self.hand.refused(error, now) + self._quit_if_done()

    def _reconcile(self, held: Reconciliation | None) -> list[Effect]:
        if held is None:
            return []
        effects: list[Effect] = [Stop(attempt_id, "cancelled") for attempt_id in held.cancel]
        ends = {
            **dict.fromkeys(held.settled, "ok_duplicate"),
            **dict.fromkeys(held.revoked, "stale_attempt"),
        }
        for attempt_id, answer in ends.items():
            if self.hand.drop(attempt_id):
                effects += [Settled(attempt_id, answer), Stop(attempt_id, "revoked")]
        return effects

    # --- what happens here ------------------------------------------------------------------

    def _hand_back(self, event: HandedBack) -> list[Effect]:
        if self.hand.drop(event.attempt_id):
            code = ControlCode.DISPATCH_UNAVAILABLE
            error = Error(code=code, message=event.reason, task_id=event.attempt_id)
            self._put(error, corr=str(event.attempt_id))
        return self._quit_if_done()

    def _measured(self, load: Measured, now: float) -> list[Effect]:
        self.load = load
        if not self.drains.measure(load):
            return []
        self._follow_drains()
        # Said at once: until the next beat more work would come.
        return self._beat(now) if self.is_working else []

    def _leave(self, event: Left, now: float) -> list[Effect]:
        if event.is_over:
            return self._quit("leaving")
        self.drains.leave()
        self._follow_drains()
        return self._beat(now) if self.is_working else []

    def _beat(self, now: float) -> list[Effect]:
        self._beat_at = now + self.heartbeat_s
        if self._missed >= MISSED_BEATS:
            return [Disconnect("heartbeats are not answered")]
        self._missed += 1
        self._deliveries.drop(Heartbeat)
        self.numbers.heartbeats_sent += 1
        self.numbers.heartbeats_degraded += self.drains.is_pressed
        beat = Heartbeat(
            healthy=not self.drains.is_pressed,
            state=self.state,
            inflight=sorted(self.hand.dispatches),
            mem_pct=self.load.mem_pct,
            disk_pct=self.load.disk_pct,
            cpu_pct=self.load.cpu_pct,
            metrics={
                "inflight_tasks": len(self.hand.dispatches),
                "heartbeat_sent_total": self.numbers.heartbeats_sent,
                "heartbeat_degraded_total": self.numbers.heartbeats_degraded,
            },
        )
        self._put(beat)
        return []

    # --- small things -----------------------------------------------------------------------

    def _follow_drains(self) -> None:
        wanted = S.DRAINING if self.drains else S.HEARTBEATING
        if self.is_working and self.state is not wanted:
            self._move(wanted)

    def _quit_if_done(self) -> list[Effect]:
        """After a final drain: when the last result is safe, go."""
        if self.drains.is_final and self.is_working and not self.hand.dispatches:
            return self._quit("drained for good")
        return []

    def _quit(self, reason: str, code: ControlCode | None = None) -> list[Effect]:
        self._move(S.CLOSED)
        return [Disconnect(reason), Quit(reason, code)]

    def _move(self, to: WorkerSessionState) -> None:
        if to not in WORKER_SESSION[self.state]:
            raise AssertionError(f"{self.state.value} does not lead to {to.value}")
        self.state = to

    def _flush(self, now: float) -> list[Effect]:
        if self.state in (S.NEW, S.BACKOFF, S.CLOSED) or self._is_given_up:
            return []
        due = self._greetings.due(now, self._chance)
        if self.is_working:
            due += self._deliveries.due(now, self._chance)
            due += self.hand.due(now, self._chance)
        return [Send(message) for message in due]

    def _is_hopeless(self, now: float) -> bool:
        if self._is_given_up:
            return False
        at_work = self._deliveries.is_hopeless(now) or self.hand.is_hopeless(now)
        return self._greetings.is_hopeless(now) or (self.is_working and at_work)

    def _greet(self, payload: Handshake | Register) -> None:
        self._greetings.put(self._message(payload, wants_ack=True))

    def _put(self, payload: Payload, *, corr: str | None = None) -> None:
        self._deliveries.put(self._message(payload, corr=corr, wants_ack=True))

    def _message(
        self, payload: Payload, *, corr: str | None = None, wants_ack: bool = False
    ) -> Message:
        return Message(id=self._new_id(), payload=payload, corr=corr, wants_ack=wants_ack)

    def _new_id(self) -> str:
        self._numbers += 1
        return f"{self.traits.process_id[:8]}-{self._numbers}"
