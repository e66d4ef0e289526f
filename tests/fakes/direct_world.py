"""A direct worker's session machine with a clock and the scheduler's side of the conversation."""

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID, uuid4

from mitosis_protocol.control_codes import WorkerSessionState
from mitosis_protocol.control_payloads import (
    Ack,
    Dispatch,
    Handshake,
    Payload,
    Register,
    SessionTerms,
)
from mitosis_protocol.control_plane import Sender, Stamp, open_frame, seal
from mitosis_protocol.specs import TaskSpec
from mitosis_protocol.to_manager import Reconciliation
from nodeagent.direct import events as ev
from nodeagent.direct.machine import Session

S = WorkerSessionState
E = TypeVar("E")
WORKER = UUID(int=7)
TERMS = SessionTerms(session_id="s1", tenant="lab", lease_s=120, heartbeat_interval_s=30)


class World:
    """A session, a clock, and the scheduler's side of the conversation."""

    def __init__(self, **traits: Any) -> None:
        given = {"node_types": ("command", "echo"), "max_parallel": 2, **traits}
        known = ev.Traits(worker_uuid=WORKER, process_uuid=uuid4(), tenant="lab", **given)
        self.machine = Session(known, chance=lambda: 0.5)
        self.now = 1000.0
        self.seen: set[tuple[S, S]] = set()
        self.all: list[ev.Effect] = []  # every effect so far
        self._numbers = 0

    def do(self, event: ev.Event) -> list[ev.Effect]:
        before = self.machine.state
        effects = self.machine.handle(event, self.now)
        if self.machine.state is not before:
            self.seen.add((before, self.machine.state))
        self.all += effects
        return effects

    def hear(self, payload: Payload, *, id: str | None = None, corr: str | None = None):
        self._numbers += 1
        stamp = Stamp(
            id or f"s-{self._numbers}", "t", "lab", Sender(role="scheduler", id="scheduler")
        )
        return self.do(ev.Heard(open_frame(seal(payload, stamp, corr=corr))))

    def later(self, seconds: float) -> list[ev.Effect]:
        self.now += seconds
        return self.do(ev.Tick())

    def connect(self) -> list[ev.Effect]:
        """To HEARTBEATING, from NEW or BACKOFF."""
        wake = self.machine.wake_at()
        assert wake is not None
        self.now = max(self.now, wake)
        assert self.do(ev.Tick())[-1:] == [ev.Connect()]
        [hello] = sent(self.do(ev.Opened()), Handshake)
        assert hello.wants_ack
        [register] = sent(self.hear(Ack(for_id=hello.id, session=TERMS)), Register)
        return self.hear(Ack(for_id=register.id, held=Reconciliation()))

    def dispatch(self, attempt_id: int = 1, **changes: Any) -> Dispatch:
        given = {
            "task_uuid": UUID(int=attempt_id),
            "attempt": 1,
            "node_type": "echo",
            "spec": TaskSpec(args=[]),
            **changes,
        }
        return Dispatch(task_id=attempt_id, **given)

    def hold(self, attempt_id: int = 1, **changes: Any) -> None:
        effects = self.hear(self.dispatch(attempt_id, **changes), corr=str(attempt_id))
        assert only(effects, ev.Start)

    def beat_until(self, condition: Callable[[], bool]) -> list[ev.Effect]:
        effects: list[ev.Effect] = []
        for _ in range(100):
            if condition():
                return effects
            wake = self.machine.wake_at()
            assert wake is not None
            self.now = max(self.now, wake)
            effects += self.do(ev.Tick())
        raise AssertionError("it never came to that")


def only(effects: list[ev.Effect], kind: type[E]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(effects: list[ev.Effect], kind: type[Payload]) -> list[ev.Message]:
    return [e.message for e in only(effects, ev.Send) if isinstance(e.message.payload, kind)]
