"""What a direct worker answers to orders, and how its words about attempts travel."""

from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from mitosis_protocol.control_codes import ControlCode, WorkerSessionState
from mitosis_protocol.control_payloads import (
    Ack,
    CancelCommand,
    Drain,
    Error,
    Feedback,
    Handshake,
    Heartbeat,
    PkgEvent,
    PkgInstall,
    Register,
    Result,
)
from mitosis_protocol.node_calls import WorkerResource
from mitosis_protocol.to_manager import Reconciliation
from nodeagent.direct import events as ev
from nodeagent.direct.machine import MISSED_BEATS
from nodeagent.direct.streams import Stream
from tests.fakes.direct_world import TERMS, WORKER, World, only, sent

S = WorkerSessionState


@pytest.fixture
def world() -> World:
    made = World()
    made.connect()
    return made


def test_a_dispatch_is_acked_and_started_once_however_often_it_comes(world: World):
    dispatch = world.dispatch()
    first = world.hear(dispatch, id="d1", corr="1")
    assert sent(first, Ack)[0].payload == Ack(for_id="d1")
    assert only(first, ev.Start) == [ev.Start(dispatch)]
    again = world.hear(dispatch, id="d1", corr="1")
    assert sent(again, Ack)[0].payload == Ack(for_id="d1", duplicate=True)
    renamed = world.hear(dispatch, id="d2", corr="1")
    assert sent(renamed, Ack)[0].payload == Ack(for_id="d2", duplicate=True)
    assert len(only(world.all, ev.Start)) == 1


def test_a_dispatch_of_a_settled_attempt_starts_nothing(world: World):
    world.hold(1)
    [result] = sent(world.do(ev.Ended(Result(task_id=1, status="succeeded"))), Result)
    world.hear(Ack(for_id=result.id, answer="ok"))
    effects = world.hear(world.dispatch(1), corr="1")
    assert not only(effects, ev.Start)
    assert sent(effects, Ack)[0].payload.duplicate  # type: ignore[attr-defined]


def _resource(resource_id: str, worker: UUID = WORKER) -> WorkerResource:
    return WorkerResource(resource_id=resource_id, worker_id=worker, type="model")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"node_type": "nobody"}, ControlCode.CMD_UNKNOWN),
        ({"concurrency_key": "k"}, ControlCode.CMD_CONCURRENCY_VIOLATION),
        ({"resource_refs": [_resource("gone")]}, ControlCode.CMD_UNKNOWN),
        ({"resource_refs": [_resource("here", UUID(int=8))]}, ControlCode.CMD_UNKNOWN),
    ],
)
def test_a_dispatch_that_cannot_run_here_is_refused_with_its_reason(
    world: World, changes: dict[str, Any], code: ControlCode
):
    world.machine.resources["here"] = _resource("here")
    world.hold(1, concurrency_key="k")
    effects = world.hear(world.dispatch(2, **changes), id="d", corr="2")
    [error] = sent(effects, Error)
    assert (error.payload.code, error.payload.for_id) == (code, "d")  # type: ignore[attr-defined]
    repeated = world.hear(world.dispatch(2, **changes), id="d", corr="2")
    assert sent(repeated, Error)[0].payload == error.payload
    assert not only(effects, ev.Start)


def test_no_more_than_the_announced_number_run_at_once(world: World):
    world.hold(1)
    world.hold(2)
    [error] = sent(world.hear(world.dispatch(3), corr="3"), Error)
    assert error.payload.code is ControlCode.CMD_CONCURRENCY_VIOLATION  # type: ignore[attr-defined]


def test_feedback_and_result_share_one_numbered_stream(world: World):
    world.hold(1)
    said = sent(world.do(ev.Said(Feedback(task_id=1, progress=0.5))), Feedback)
    ended = sent(world.do(ev.Ended(Result(task_id=1, status="succeeded"))), Result)
    assert [message.seq for message in (*said, *ended)] == [1, 2]
    assert {message.corr for message in (*said, *ended)} == {"1"}
    effects = world.hear(Ack(for_id=ended[0].id, answer="ok"))
    assert only(effects, ev.Settled) == [ev.Settled(1, "ok")]
    assert world.machine.hand.dispatches == {}


def test_after_a_gap_the_stream_goes_on_from_the_number_expected(world: World):
    world.hold(1)
    for _ in range(3):
        world.do(ev.Said(Feedback(task_id=1)))
    world.now += 0.15
    gap = Error(code=ControlCode.RESULT_SEQ_GAP, task_id=1, expect=2)
    again = sent(world.hear(gap), Feedback)
    assert [message.seq for message in again] == [2, 3]
    # The second complaint is about the same loss.
    assert sent(world.hear(gap), Feedback) == []


def test_repetitions_of_a_stream_keep_their_order(world: World):
    world.hold(1)
    for _ in range(3):
        world.do(ev.Said(Feedback(task_id=1)))
    again = sent(world.later(5), Feedback)
    assert [message.seq for message in again] == [1, 2, 3]


def test_a_refused_message_is_replaced_so_that_the_stream_goes_on(world: World):
    world.hold(1)
    [said] = sent(world.do(ev.Said(Feedback(task_id=1, message="x"))), Feedback)
    refused = Error(code=ControlCode.PROTOCOL_MALFORMED, for_id=said.id)
    [instead] = sent(world.hear(refused), Feedback)
    assert (instead.seq, instead.payload) == (said.seq, Feedback(task_id=1))
    [ended] = sent(world.do(ev.Ended(Result(task_id=1, status="succeeded"))), Result)
    [failed] = sent(world.hear(msgspec.structs.replace(refused, for_id=ended.id)), Result)
    assert (failed.seq, failed.payload.status) == (2, "failed")  # type: ignore[attr-defined]


def test_a_reconnect_lists_what_is_held_and_sends_again_what_was_not_acked(world: World):
    world.hold(1)
    world.hold(2)
    [first] = sent(world.do(ev.Said(Feedback(task_id=1))), Feedback)
    world.hear(Ack(for_id=first.id))
    [result] = sent(world.do(ev.Ended(Result(task_id=1, status="succeeded"))), Result)
    world.do(ev.Lost(ev.LinkEnd.LOST, "gone"))
    world.now += 60
    world.do(ev.Tick())
    world.do(ev.Tick())
    [hello] = sent(world.do(ev.Opened()), Handshake)
    assert hello.payload.session_id == "s1"  # type: ignore[attr-defined]
    [register] = sent(world.hear(Ack(for_id=hello.id, session=TERMS)), Register)
    inventory = register.payload.inventory  # type: ignore[attr-defined]
    assert [(held.task_id, held.next_seq) for held in inventory] == [(1, 2), (2, 1)]
    assert not register.payload.is_clean  # type: ignore[attr-defined]
    effects = world.hear(Ack(for_id=register.id, held=Reconciliation(kept=[1], revoked=[2])))
    assert only(effects, ev.Stop) == [ev.Stop(2, "revoked")]
    assert [message.id for message in sent(effects, Result)] == [result.id]


def test_what_the_coordinator_gave_to_somebody_else_is_stopped_in_silence(world: World):
    world.hold(1)
    world.do(ev.Said(Feedback(task_id=1)))
    stale = Error(code=ControlCode.SESSION_STALE_BINDING, task_id=1)
    effects = world.hear(stale)
    assert only(effects, ev.Stop) == [ev.Stop(1, "revoked")]
    assert only(effects, ev.Settled) == [ev.Settled(1, "stale_attempt")]
    assert not sent(world.do(ev.Ended(Result(task_id=1, status="failed"))), Result)


@pytest.mark.parametrize("why", ["cancelled", "revoked"])
def test_a_cancel_stops_the_attempt_and_only_a_revoked_one_is_forgotten(world: World, why: Any):
    world.hold(1)
    effects = world.hear(CancelCommand(task_id=1, why=why), corr="1")
    assert only(effects, ev.Stop) == [ev.Stop(1, why)]
    assert sent(effects, Ack)
    assert (1 in world.machine.hand.dispatches) is (why == "cancelled")


def test_a_heartbeat_tells_what_is_held_and_hears_what_to_stop(world: World):
    world.hold(1)
    world.hold(2)
    [beat] = sent(world.later(31), Heartbeat)
    assert beat.payload.inflight == [1, 2]  # type: ignore[attr-defined]
    held = Reconciliation(cancel=[1], revoked=[2])
    effects = world.hear(Ack(for_id=beat.id, held=held))
    assert set(only(effects, ev.Stop)) == {ev.Stop(1, "cancelled"), ev.Stop(2, "revoked")}


def test_heartbeats_without_answers_end_the_connection(world: World):
    for _ in range(MISSED_BEATS + 1):
        world.later(31)
    assert only(world.all, ev.Disconnect)


@pytest.mark.parametrize(("mem", "disk"), [(90, 10), (10, 95)])
def test_a_full_host_drains_at_once_and_takes_work_again_with_a_margin(
    world: World, mem: float, disk: float
):
    world.do(ev.Measured(89.9, 94.9))
    assert world.machine.state is S.HEARTBEATING
    [beat] = sent(world.do(ev.Measured(mem, disk)), Heartbeat)
    told = beat.payload
    assert isinstance(told, Heartbeat)
    assert (told.healthy, told.state, told.mem_pct) == (False, S.DRAINING, mem)
    [error] = sent(world.hear(world.dispatch(), corr="1"), Error)
    assert error.payload.code is ControlCode.DISPATCH_UNAVAILABLE  # type: ignore[attr-defined]
    world.do(ev.Measured(mem - 1, disk - 1))
    assert world.machine.state is S.DRAINING, "it would flap"
    world.do(ev.Measured(10, 10))
    assert world.machine.state is S.HEARTBEATING


def test_an_ordered_drain_outlives_the_relief_of_pressure(world: World):
    world.hear(Drain(reason="maintenance"))
    world.do(ev.Measured(95, 10))
    world.do(ev.Measured(10, 10))
    assert world.machine.state is S.DRAINING
    world.hear(Drain(is_lifted=True))
    assert world.machine.state is S.HEARTBEATING


def test_a_final_drain_ends_the_session_when_the_last_result_is_safe(world: World):
    world.hold(1)
    assert not only(world.hear(Drain(reason="retired", is_final=True)), ev.Quit)
    [result] = sent(world.do(ev.Ended(Result(task_id=1, status="succeeded"))), Result)
    assert world.machine.state is S.DRAINING
    effects = world.hear(Ack(for_id=result.id, answer="ok"))
    assert only(effects, ev.Quit) == [ev.Quit("drained for good")]


def test_an_attempt_handed_back_is_announced_and_forgotten(world: World):
    world.hold(1)
    [error] = sent(world.do(ev.HandedBack(1, "no room")), Error)
    assert (error.payload.code, error.payload.task_id) == (  # type: ignore[attr-defined]
        ControlCode.DISPATCH_UNAVAILABLE,
        1,
    )
    assert world.machine.hand.dispatches == {}


def _package(**changes: Any) -> PkgInstall:
    given = {"name": "p", "version": "1", "url": "u", "sha256": "0" * 64, "size_bytes": 1}
    return PkgInstall(op_id=uuid4(), **{**given, **changes})


def test_packages_are_refused_unless_the_operator_allowed_them(world: World):
    effects = world.hear(_package())
    [event] = sent(effects, PkgEvent)
    told = event.payload
    assert isinstance(told, PkgEvent)
    assert (told.status, told.code) == ("refused", ControlCode.PKG_PERMISSION)
    assert not only(effects, ev.Install)
    open_minded = World(allow_packages=True)
    open_minded.connect()
    request = _package()
    assert only(open_minded.hear(request, id="p"), ev.Install) == [ev.Install(request)]
    assert not only(open_minded.hear(request, id="p"), ev.Install), "not twice"


def test_the_end_of_an_installation_is_told_again_after_a_reconnect():
    world = World(allow_packages=True)
    world.connect()
    request = _package()
    world.hear(request)
    event = PkgEvent(op_id=request.op_id, op="install", name="p", version="1", status="installed")
    [told] = sent(world.do(ev.PackageTold(event)), PkgEvent)
    world.do(ev.Lost(ev.LinkEnd.LOST, "gone"))
    effects = world.connect()
    assert [message.id for message in sent(effects, PkgEvent)] == [told.id]


def test_a_later_message_of_a_stream_never_overtakes_the_oldest():
    """By chance its own pause would be over first; that would be a gap."""
    stream = Stream(1)
    for name in ("a", "b"):
        stream.put(name, Feedback(task_id=1))
    pauses = iter([0.99, 0.0, 0.5, 0.5])
    assert len(stream.due(0.0, lambda: next(pauses))) == 2
    assert stream.due(0.2, lambda: next(pauses)) == []
    assert [message.id for message in stream.due(0.3, lambda: next(pauses))] == ["a", "b"]


def test_a_message_given_up_on_one_connection_starts_afresh_on_the_next(world: World):
    world.hold(1)
    world.do(ev.Said(Feedback(task_id=1)))
    world.beat_until(lambda: bool(only(world.all, ev.Disconnect)))
    world.do(ev.Lost(ev.LinkEnd.LOST, "no acks"))
    assert sent(world.connect(), Feedback)
    assert sent(world.later(0.3), Feedback), "the short pause of a first repetition"


def test_the_scheduler_says_how_full_the_host_may_be():
    world = World()
    world.do(ev.Tick())
    [hello] = sent(world.do(ev.Opened()), Handshake)
    terms = msgspec.structs.replace(TERMS, drain_mem_pct=50.0, drain_disk_pct=99.0)
    [register] = sent(world.hear(Ack(for_id=hello.id, session=terms)), Register)
    world.hear(Ack(for_id=register.id, held=Reconciliation()))
    world.do(ev.Measured(49.0, 98.0))
    assert world.machine.state is S.HEARTBEATING
    world.do(ev.Measured(50.0, 98.0))
    assert world.machine.state is S.DRAINING
