"""Order, repetition and owed acks of the control plane, without a socket."""

import asyncio

import pytest

from core.counters import REGISTRY
from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_plane import ACK_TRIES
from websocket import worker_streams
from websocket.worker_holdings import MAX_ENDED, Attempt, Holdings
from websocket.worker_streams import Place, Remembered, Stream, Unacked


def test_a_stream_takes_numbers_in_order_and_each_once():
    stream = Stream()
    places = [stream.admit(seq) for seq in (1, 1, 3, 2, 3, 2)]
    assert places == [
        Place.NEXT, Place.REPEATED, Place.GAP, Place.NEXT, Place.NEXT, Place.REPEATED,
    ]  # fmt: skip


def test_a_message_that_could_not_be_kept_is_the_next_again_and_those_behind_it_wait():
    stream = Stream(expect=5)
    assert [stream.admit(5), stream.admit(6)] == [Place.NEXT, Place.NEXT]
    stream.fail(5)
    assert [stream.admit(6), stream.admit(5), stream.admit(6)] == [
        Place.GAP, Place.NEXT, Place.NEXT,
    ]  # fmt: skip


def test_a_session_remembers_so_many_messages_and_no_more():
    memory = Remembered(size=2)
    for name in ("a", "b", "c"):
        memory.note((name, None), f"answer {name}")
    assert not memory.is_known(("a", None))
    assert memory.answer_to(("b", None)) == "answer b"
    # The same id about another attempt is another message.
    assert not memory.is_known(("b", "7"))
    memory.forget(("b", None))
    assert not memory.is_known(("b", None))


def test_an_attempt_that_ended_is_remembered_for_a_while():
    held = Holdings()
    held.take(Attempt(1))
    held.end(1, last_number=3)
    assert (len(held), held.has_heard(1, 3), held.has_heard(1, 4)) == (0, True, False)
    for attempt_id in range(2, MAX_ENDED + 2):
        held.end(attempt_id, last_number=1)
    assert not held.has_heard(1, 1)


def test_only_attempts_on_their_way_are_kept_from_an_inventorys_judgement():
    held = Holdings()
    for attempt in (Attempt(1), Attempt(2, dispatch_id="m"), Attempt(3, is_ending=True)):
        held.take(attempt)
    assert sorted(held.in_motion()) == [2, 3]


class Wire:
    """Collects what is sent, and who fell silent."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.silent: list[str] = []
        self.unacked = Unacked(self.sent.append, self.silent.append)


def retries() -> float:
    return REGISTRY.get_sample_value("cmd_retry_total", {"reason": "no_ack"}) or 0


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_streams, "retry_delay_s", lambda tries, jitter: 0.001)


async def until(check, within_s: float = 20) -> None:
    async with asyncio.timeout(within_s):
        while not check():  # noqa: ASYNC110 - timers set it, no event
            await asyncio.sleep(0.001)


@pytest.mark.usefixtures("_hasty")
async def test_an_unacked_message_is_sent_six_times_and_then_given_up():
    wire, before = Wire(), retries()
    wire.unacked.send("m", "frame")
    await until(lambda: wire.silent)
    assert (wire.sent, wire.silent) == (["frame"] * ACK_TRIES, ["m"])
    assert retries() - before == ACK_TRIES - 1
    assert not wire.unacked.acked("m")  # too late


@pytest.mark.usefixtures("_hasty")
async def test_an_ack_or_a_refusal_ends_the_repetition_and_is_told_once():
    wire = Wire()
    told: list[object] = []
    for name in ("a", "b"):
        wire.unacked.send(
            name, name, on_ack=lambda: told.append("ack"), on_refusal=lambda *why: told.append(why)
        )
    await until(lambda: len(wire.sent) > 2)
    assert wire.unacked.acked("a")
    assert not wire.unacked.acked("a")
    assert wire.unacked.refused("b", ControlCode.CMD_UNKNOWN, "no")
    count = len(wire.sent)
    await asyncio.sleep(0.05)
    assert (len(wire.sent), told) == (count, ["ack", (ControlCode.CMD_UNKNOWN, "no")])
    assert wire.silent == []
