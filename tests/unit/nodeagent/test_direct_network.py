"""The session machine on a bad network: loss, repetition and cut connections in any order.

A model of the scheduler takes numbered messages strictly in order and repeats its dispatches.
Whatever the network did: each ran once, and all that was said arrived once and in order.
"""

import random
from uuid import UUID, uuid4

import pytest

from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import (
    Ack,
    Dispatch,
    Error,
    Feedback,
    Handshake,
    Payload,
    Register,
    Result,
    SessionTerms,
)
from mitosis_protocol.control_plane import Sender, Stamp, open_frame, seal
from mitosis_protocol.specs import TaskSpec
from mitosis_protocol.to_manager import Reconciliation
from nodeagent.direct import events as ev
from nodeagent.direct.machine import Session

TASKS = 12
WORDS = 5
TERMS = SessionTerms(session_id="s", tenant="lab", lease_s=120, heartbeat_interval_s=5)


class BadNetwork:
    """Worker, scheduler and what lies between them, on one clock."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        traits = ev.Traits(
            worker_uuid=uuid4(),
            process_uuid=uuid4(),
            tenant="lab",
            node_types=("echo",),
            max_parallel=3,
        )
        self.worker = Session(traits, chance=self.random.random)
        self.now = 0.0
        self.is_bad = True
        self.started: list[int] = []
        self.taken: dict[int, list[Payload]] = {}
        self.settled: dict[int, str] = {}
        self._unsaid: dict[int, int] = {}  # words each running attempt has still to say
        self._waiting = list(range(1, TASKS + 1))
        self._dispatched: dict[int, str] = {}  # attempt to the id of its dispatch, until acked
        self._held: set[int] = set()
        self._to_worker: list[tuple[Payload, str]] = []
        self._is_connected = False
        self._is_live = False
        self._numbers = 0

    @property
    def is_done(self) -> bool:
        return len(self.settled) == TASKS

    def step(self) -> None:
        """A moment passes; what was said travels, or does not."""
        wake = self.worker.wake_at()
        pause = self.random.uniform(0.01, 0.5)
        self.now += pause if wake is None else min(max(wake - self.now, 0.001), pause)
        self._do(ev.Tick())
        self._work()
        if self._is_live:
            self._schedule()
        incoming, self._to_worker = self._to_worker, []
        for payload, message_id in incoming:
            self._deliver(payload, message_id)
        if self._is_connected and self.is_bad and self.random.random() < 0.02:
            self._cut()

    # --- the worker's side ---

    def _work(self) -> None:
        for attempt_id, left in list(self._unsaid.items()):
            if left and self.random.random() < 0.5:
                self._unsaid[attempt_id] -= 1
                self._do(ev.Said(Feedback(task_id=attempt_id, message=str(WORDS - left))))
            elif not left:
                del self._unsaid[attempt_id]
                self._do(ev.Ended(Result(task_id=attempt_id, status="succeeded")))

    def _do(self, event: ev.Event) -> None:
        for effect in self.worker.handle(event, self.now):
            match effect:
                case ev.Connect():
                    self._is_connected = True
                    self._do(ev.Opened())
                case ev.Disconnect():
                    self._cut()
                case ev.Send():
                    self._hear(effect.message)
                case ev.Start():
                    self.started.append(effect.dispatch.task_id)
                    self._unsaid[effect.dispatch.task_id] = WORDS
                case ev.Settled():
                    assert effect.attempt_id not in self.settled
                    self.settled[effect.attempt_id] = effect.answer
                case ev.Stop():
                    assert effect.attempt_id in self.settled
                case _:
                    assert isinstance(effect, ev.Taken), effect

    def _deliver(self, payload: Payload, message_id: str) -> None:
        for _ in range(self._copies()):
            if self._is_connected:
                stamp = Stamp(message_id, "t", "lab", Sender(role="scheduler", id="s"))
                corr = str(payload.task_id) if isinstance(payload, Dispatch) else None
                self._do(ev.Heard(open_frame(seal(payload, stamp, corr=corr))))

    def _cut(self) -> None:
        if self._is_connected:
            self._is_connected = self._is_live = False
            self._to_worker.clear()
            self._dispatched.clear()
            self._do(ev.Lost(ev.LinkEnd.LOST, "cut"))

    def _copies(self) -> int:
        """0 is lost, 2 is repeated."""
        return self.random.choice([0, 1, 1, 1, 2]) if self.is_bad else 1

    # --- the scheduler's side ---

    def _schedule(self) -> None:
        for attempt_id in list(self._dispatched):
            if self.random.random() < 0.3:
                self._say_dispatch(attempt_id)
        while self._waiting and len(self._held) < 3:
            attempt_id = self._waiting.pop(0)
            self._held.add(attempt_id)
            self._dispatched[attempt_id] = f"d{attempt_id}-{self._numbers}"
            self._say_dispatch(attempt_id)

    def _say_dispatch(self, attempt_id: int) -> None:
        dispatch = Dispatch(
            task_id=attempt_id,
            task_uuid=UUID(int=attempt_id),
            attempt=1,
            node_type="echo",
            spec=TaskSpec(args=[]),
        )
        self._to_worker.append((dispatch, self._dispatched[attempt_id]))

    def _hear(self, message: ev.Message) -> None:
        if not self._is_connected:
            return
        for _ in range(self._copies()):
            answer = self._answer(message)
            if answer is not None:
                self._numbers += 1
                self._to_worker.append((answer, f"s{self._numbers}"))

    def _answer(self, message: ev.Message) -> Payload | None:
        payload = message.payload
        if isinstance(payload, Ack):
            named = {name: attempt_id for attempt_id, name in self._dispatched.items()}
            self._dispatched.pop(named.get(payload.for_id, 0), None)
            return None
        if isinstance(payload, Handshake):
            return Ack(for_id=message.id, session=TERMS)
        if isinstance(payload, Register):
            return self._register(message, payload)
        if isinstance(payload, Feedback | Result):
            return self._take(message, payload)
        return Ack(for_id=message.id, held=Reconciliation())

    def _register(self, message: ev.Message, said: Register) -> Ack:
        self._is_live = True
        listed = {held.task_id for held in said.inventory}
        # What it does not name was never begun, or its result was taken already.
        for attempt_id in self._held - listed:
            self._held.discard(attempt_id)
            if attempt_id not in self.settled and not self._is_over(attempt_id):
                self._waiting.insert(0, attempt_id)
        settled = [attempt_id for attempt_id in listed if self._is_over(attempt_id)]
        return Ack(for_id=message.id, held=Reconciliation(settled=settled))

    def _is_over(self, attempt_id: int) -> bool:
        return any(isinstance(one, Result) for one in self.taken.get(attempt_id, []))

    def _take(self, message: ev.Message, payload: Feedback | Result) -> Payload:
        kept = self.taken.setdefault(payload.task_id, [])
        assert message.seq is not None
        if message.seq > len(kept) + 1:
            return Error(
                code=ControlCode.RESULT_SEQ_GAP,
                for_id=message.id,
                task_id=payload.task_id,
                expect=len(kept) + 1,
                retryable=True,
            )
        if message.seq == len(kept) + 1:
            kept.append(payload)
            if isinstance(payload, Result):
                self._held.discard(payload.task_id)
        return Ack(for_id=message.id, duplicate=message.seq <= len(kept))


@pytest.mark.parametrize("seed", range(25))
def test_everything_said_arrives_once_and_in_order_whatever_the_network_does(seed: int):
    network = BadNetwork(seed)
    for number in range(4000):
        network.is_bad = number < 1500
        network.step()
        if network.is_done:
            break
    assert network.is_done, (network.worker.state, network.settled)
    assert sorted(network.started) == list(range(1, TASKS + 1)), "each ran once"
    for attempt_id in network.started:
        *words, last = network.taken[attempt_id]
        said = [word.message for word in words if isinstance(word, Feedback)]
        assert said == [str(n) for n in range(WORDS)]
        assert isinstance(last, Result)
    assert network.worker.hand.dispatches == {}
