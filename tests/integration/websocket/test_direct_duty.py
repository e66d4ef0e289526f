"""The scheduler's side of one session, without a socket or a database: heartbeats, drains, acks."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from pytest_django import Settings

from core.counters import REGISTRY
from mitosis_protocol.control_payloads import Ack, CancelCommand, Drain
from mitosis_protocol.control_plane import Frame, Sender, Stamp, open_frame, seal
from mitosis_protocol.errors import ErrorCode
from websocket.close_codes import CloseCode
from websocket.worker_duty import Duty
from websocket.worker_holdings import Attempt
from websocket.worker_peer import WorkerPeer
from websocket.worker_voice import Voice
from workers.services.control_plane import Tenant


class Desk:
    """A duty, what it said, and how it ended."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.silent: list[str] = []
        self.ended: list[tuple[CloseCode, ErrorCode | None]] = []
        self.peer = WorkerPeer(1, uuid4(), 1, Tenant(1, "lab", has_consented=True))
        self.voice = Voice(
            self.peer, lambda text: self.frames.append(open_frame(text)), self.silent.append
        )
        self.duty = Duty(self.peer, self.voice, begin=self._begin, close=self._close)

    def said(self, kind: type) -> list[Any]:
        return [frame.payload for frame in self.frames if isinstance(frame.payload, kind)]

    def ack(self, corr: str) -> Frame:
        stamp = Stamp("m", "2026-01-01T00:00:00Z", "lab", Sender(role="worker", id="w"))
        return open_frame(seal(Ack(for_id="gone"), stamp, corr=corr))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        work.close()

    def _close(self, code: CloseCode, reason: str, *, error: ErrorCode | None = None) -> None:
        self.ended.append((code, error))


def missed(worker: str) -> int:
    labels = {"tenant": "lab", "worker": worker}
    return int(REGISTRY.get_sample_value("ws_heartbeat_miss_total", labels) or 0)


@pytest.fixture
async def desk() -> Any:
    made = Desk()
    yield made
    made.voice.close()
    made.duty.close()


@pytest.fixture
def _hasty(settings: Settings) -> None:
    settings.MITOSIS = replace(django_settings.MITOSIS, heartbeat_s=0.2, handshake_s=0.2)


@pytest.mark.usefixtures("_hasty")
async def test_missed_heartbeats_warn_stop_new_work_and_end_the_session(desk: Desk):
    worker = str(desk.peer.runner_uuid)
    watch = asyncio.create_task(desk.duty.watch_beats())
    await asyncio.sleep(0)
    desk.duty.go_live(max_parallel=2)
    assert desk.duty.room == 2
    rooms: dict[int, int] = {}
    async with asyncio.timeout(20):
        while not watch.done():
            misses = missed(worker)
            rooms.setdefault(misses, desk.duty.room)
            await asyncio.sleep(0.005)
    assert rooms[0] == 2
    assert rooms.get(1, 2) == 2
    assert rooms.get(2, 0) == 0
    assert missed(worker) == 3
    assert desk.ended == [(CloseCode.OVERLOAD, ErrorCode.REQUEST_TIMEOUT)]


@pytest.mark.usefixtures("_hasty")
async def test_a_socket_without_a_handshake_ends(desk: Desk):
    await asyncio.wait_for(desk.duty.watch_beats(), 20)
    assert desk.ended == [(CloseCode.PROTOCOL, ErrorCode.SESSION_DENIED)]


async def test_pressure_is_told_when_it_comes_and_when_it_goes(desk: Desk):
    desk.duty.go_live(max_parallel=1)
    for reason in ("memory is at 95 %", "memory is at 96 %", ""):
        desk.duty.put_under_pressure(reason)
        assert bool(desk.duty.room) is not bool(reason)
    assert [(one.is_lifted, bool(one.reason)) for one in desk.said(Drain)] == [
        (False, True), (True, True),
    ]  # fmt: skip


async def test_a_late_ack_of_a_dispatch_that_was_taken_back_is_answered_with_revoked(desk: Desk):
    desk.duty.go_live(max_parallel=1)
    desk.duty.held.take(Attempt(7))
    desk.duty.held.end(8, last_number=1)
    for attempt in ("7", "8", "9"):
        desk.duty.stray_ack(desk.ack(attempt))
    assert [(one.task_id, one.why) for one in desk.said(CancelCommand)] == [(9, "revoked")]


async def test_a_stop_is_said_once_with_the_next_number_of_its_attempt(desk: Desk):
    attempt = desk.duty.held.take(Attempt(7, said=1))
    desk.duty.stop_attempt(7)
    desk.duty.stop_attempt(7)
    [frame] = [one for one in desk.frames if isinstance(one.payload, CancelCommand)]
    assert (frame.envelope.corr, frame.envelope.seq, attempt.said) == ("7", 2, 2)


async def test_letting_go_withdraws_a_dispatch_that_is_on_its_way(desk: Desk):
    attempt = desk.duty.held.take(Attempt(7))
    attempt.dispatch_id = desk.voice.insist(Drain())
    desk.duty.let_go(7)
    assert not desk.voice.acked(attempt.dispatch_id)  # nobody waits for it any more
