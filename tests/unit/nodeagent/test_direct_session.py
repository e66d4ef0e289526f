"""The life of a direct worker's session: every edge of its table, and what ends it."""

from collections.abc import Callable

import pytest

from mitosis_protocol.control_codes import WORKER_SESSION, ControlCode, WorkerSessionState
from mitosis_protocol.control_payloads import (
    Ack,
    Drain,
    Error,
    Handshake,
    Heartbeat,
)
from mitosis_protocol.control_plane import ACK_TRIES
from nodeagent.direct import events as ev
from tests.fakes.direct_world import TERMS, World, only, sent

S = WorkerSessionState


@pytest.fixture
def world() -> World:
    made = World()
    made.connect()
    return made


def test_every_edge_of_the_table_is_walked_and_no_other():
    """Each way below is one row; together they are the whole table."""
    seen: set[tuple[S, S]] = set()
    for way in WAYS:
        walked = World()
        way(walked)
        seen |= walked.seen
    assert seen == {(start, end) for start, ends in WORKER_SESSION.items() for end in ends}


def _lose_from_new(w: World) -> None:
    w.do(ev.Tick())
    w.do(ev.Lost(ev.LinkEnd.LOST, "refused"))
    w.later(60)
    assert w.machine.state is S.NEW


def _lose_in_handshake(w: World) -> None:
    w.do(ev.Tick())
    w.do(ev.Opened())
    w.do(ev.Lost(ev.LinkEnd.LOST, "gone"))


def _lose_when_registered(w: World) -> None:
    w.do(ev.Tick())
    [hello] = sent(w.do(ev.Opened()), Handshake)
    w.hear(Ack(for_id=hello.id, session=TERMS))
    w.do(ev.Lost(ev.LinkEnd.LOST, "gone"))


def _lose_at_work(w: World) -> None:
    w.connect()
    w.do(ev.Lost(ev.LinkEnd.LOST, "gone"))


def _drain_and_lift_and_lose(w: World) -> None:
    w.connect()
    w.hear(Drain(reason="maintenance"))
    w.hear(Drain(is_lifted=True))
    w.hear(Drain(reason="maintenance"))
    w.do(ev.Lost(ev.LinkEnd.LOST, "gone"))


def _leave_from(*steps: Callable[[World], object]) -> Callable[[World], None]:
    def way(w: World) -> None:
        for step in steps:
            step(w)
        w.do(ev.Left(is_over=True))
        assert w.machine.state is S.CLOSED
        assert w.do(ev.Tick()) == []

    return way


def _greet(w: World) -> None:
    [hello] = sent(w.do(ev.Opened()), Handshake)
    w.hear(Ack(for_id=hello.id, session=TERMS))


WAYS: list[Callable[[World], None]] = [
    _lose_from_new,
    _lose_in_handshake,
    _lose_when_registered,
    _lose_at_work,
    _drain_and_lift_and_lose,
    _leave_from(),
    _leave_from(lambda w: w.do(ev.Tick()), lambda w: w.do(ev.Opened())),
    _leave_from(lambda w: w.do(ev.Tick()), _greet),
    _leave_from(World.connect),
    _leave_from(World.connect, lambda w: w.hear(Drain())),
    _leave_from(lambda w: w.do(ev.Tick()), lambda w: w.do(ev.Lost(ev.LinkEnd.LOST, "x"))),
]


def test_a_session_is_built_from_handshake_and_register():
    world = World()
    effects = world.connect()
    assert world.machine.state is S.HEARTBEATING
    assert world.machine.session_id == "s1"
    [beat] = sent(effects, Heartbeat)
    assert beat.payload.inflight == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("code", "is_end"),
    [
        (ControlCode.AUTH_INVALID_TOKEN, True),
        (ControlCode.AUTH_MTLS_REQUIRED, True),
        (ControlCode.SESSION_DENIED, False),
        (ControlCode.PROTOCOL_VERSION, True),
        (ControlCode.SESSION_SUPERSEDED, False),
        (ControlCode.INTERNAL, False),
    ],
)
def test_an_error_to_the_handshake_ends_the_session_or_the_connection(
    code: ControlCode, is_end: bool
):
    world = World()
    world.do(ev.Tick())
    [hello] = sent(world.do(ev.Opened()), Handshake)
    effects = world.hear(Error(code=code, for_id=hello.id))
    assert only(effects, ev.Disconnect)
    assert bool(only(effects, ev.Quit)) is is_end


def test_a_refused_token_ends_it_and_a_lost_link_backs_off_longer_each_time():
    world = World()
    pauses = []
    for _ in range(4):
        world.do(ev.Tick())
        world.do(ev.Lost(ev.LinkEnd.LOST, "no route"))
        wake = world.machine.wake_at()
        assert wake is not None
        pauses.append(wake - world.now)
        world.now = wake
    assert pauses == sorted(pauses)
    assert pauses[-1] > 2 * pauses[0]
    world.do(ev.Tick())
    [quit_] = only(world.do(ev.Lost(ev.LinkEnd.REFUSED, "401")), ev.Quit)
    assert quit_.code is ControlCode.AUTH_INVALID_TOKEN


def test_three_takeovers_in_a_row_are_somebody_with_our_identity():
    world = World()
    for _ in range(2):
        world.connect()
        assert not only(world.do(ev.Lost(ev.LinkEnd.SUPERSEDED, "4409")), ev.Quit)
    world.connect()
    [quit_] = only(world.do(ev.Lost(ev.LinkEnd.SUPERSEDED, "4409")), ev.Quit)
    assert quit_.code is ControlCode.SESSION_SUPERSEDED


def test_an_unacked_message_is_repeated_with_its_id_and_then_the_link_is_given_up():
    world = World()
    world.do(ev.Tick())
    [hello] = sent(world.do(ev.Opened()), Handshake)
    effects = world.beat_until(lambda: bool(only(world.all, ev.Disconnect)))
    assert {message.id for message in sent(effects, Handshake)} == {hello.id}
    assert len(sent(effects, Handshake)) == ACK_TRIES - 1
