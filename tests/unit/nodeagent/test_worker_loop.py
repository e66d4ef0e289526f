"""The loop around tasks: heartbeats, attempts that failed us, leaving."""

import asyncio
from uuid import uuid4

import pytest

from mitosis_protocol.enums import TaskResultMessage
from mitosis_protocol.specs import TaskSpec
from nodeagent.errors import (
    CoordinatorUnavailable,
    OfferUnreadable,
    ReportRefused,
    WorkerRemoved,
)
from nodeagent.worker import loop
from nodeagent.worker.comm import Commit, HeartbeatReply, TaskOffer, TaskRef
from nodeagent.worker.control import StopReason, TaskControl
from nodeagent.worker.departure import Departure
from nodeagent.worker.loop import Intervals, WorkerLoop
from nodeagent.worker.retry import Backoff
from nodeagent.worker.task_run import NEVER_RAN_STATUS
from tests.fakes.worker_comm import FakeComm, make_offer

SPEC = TaskSpec(args=["true"])


class Script:
    """A Runner that does what the test says."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends = list(ends)
        self.ran: list[int] = []
        self.rejected: list[tuple[int, Commit]] = []
        self.controls: list[TaskControl] = []

    async def run(self, offer: TaskOffer, control: TaskControl) -> None:
        self.ran.append(offer.attempt_id)
        self.controls.append(control)
        end = self.ends.pop(0)
        if end is not None:
            raise end

    async def reject(self, task: TaskRef, commit: Commit) -> None:
        self.rejected.append((task.attempt_id, commit))


class UntilStopped(Script):
    """A Runner whose task runs until it is stopped."""

    async def run(self, offer: TaskOffer, control: TaskControl) -> None:
        self.controls.append(control)
        await control.wait_stopped()


class Cleaner:
    def __init__(self) -> None:
        self.count = 0

    async def reset(self) -> None:
        self.count += 1


def loop_of(
    comm: FakeComm, runner: Script, departure: Departure, cleaner: Cleaner | None = None
) -> WorkerLoop:
    intervals = Intervals(polling_s=0.01, heartbeat_s=0.01, grace_s=0.0)
    return WorkerLoop(comm, runner, cleaner or Cleaner(), departure, intervals)


async def run_for(worker: WorkerLoop, departure: Departure, seconds: float = 0.2) -> None:
    asyncio.get_running_loop().call_later(seconds, departure.hurry)
    async with asyncio.timeout(5):
        await worker.run()


async def test_tasks_are_run_one_after_another_and_cleaned_up_after() -> None:
    comm, runner, departure, cleaner = FakeComm(), Script(None, None), Departure(), Cleaner()
    comm.offers = [make_offer(SPEC, attempt_id=1), make_offer(SPEC, attempt_id=2)]
    await run_for(loop_of(comm, runner, departure, cleaner), departure)
    assert (runner.ran, cleaner.count) == ([1, 2], 2)


async def test_an_attempt_that_failed_us_is_settled_when_it_comes_back() -> None:
    comm, departure = FakeComm(), Departure()
    runner = Script(ReportRefused("400"), KeyError("bug"), None)
    comm.offers = [make_offer(SPEC, attempt_id=number) for number in (1, 2, 1, 2, 3)]
    await run_for(loop_of(comm, runner, departure), departure)
    assert runner.ran == [1, 2, 3]
    assert runner.rejected == [(1, Commit(NEVER_RAN_STATUS)), (2, Commit(NEVER_RAN_STATUS))]


async def test_an_unreadable_offer_is_settled_with_the_fitting_message() -> None:
    comm, runner, departure = FakeComm(), Script(), Departure()
    comm.offers = [
        OfferUnreadable("x", attempt_id=1, uuid=uuid4(), is_resource_trouble=False),
        OfferUnreadable("x", attempt_id=2, uuid=uuid4(), is_resource_trouble=True),
    ]
    await run_for(loop_of(comm, runner, departure), departure)
    assert runner.rejected == [
        (1, Commit(NEVER_RAN_STATUS)),
        (2, Commit(0, TaskResultMessage.RESOURCE_FORBIDDEN)),
    ]


async def test_heartbeats_name_the_attempt_in_hand_and_obey_the_answer() -> None:
    comm, runner, departure = FakeComm(), UntilStopped(), Departure()
    comm.offers = [make_offer(SPEC, attempt_id=8), make_offer(SPEC, attempt_id=9)]
    comm.reply = HeartbeatReply(cancel=frozenset({8}), revoked=frozenset({9}))
    await run_for(loop_of(comm, runner, departure), departure)
    assert {(8,), (9,)} <= set(comm.heartbeats)
    assert [control.reason for control in runner.controls] == [
        StopReason.CANCELLED,
        StopReason.REVOKED,
    ]


async def test_missed_heartbeats_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_HEARTBEAT_BACKOFF", Backoff(base_s=0.0, floor_s=0.0))
    comm, runner, departure = FakeComm(), Script(), Departure()
    comm.troubles["heartbeat"] = [CoordinatorUnavailable("x")] * 2
    await run_for(loop_of(comm, runner, departure), departure)
    assert len(comm.heartbeats) > 3


async def test_a_removal_heard_by_the_heartbeat_stops_the_task_and_the_loop() -> None:
    comm, runner = FakeComm(), UntilStopped()
    comm.offers = [make_offer(SPEC)]
    comm.troubles["heartbeat"] = [WorkerRemoved("401")]
    with pytest.raises(WorkerRemoved):
        async with asyncio.timeout(5):
            await loop_of(comm, runner, Departure()).run()
    assert [control.reason for control in runner.controls] == [StopReason.REMOVED]


async def test_leaving_interrupts_a_fetch_that_hangs() -> None:
    comm, departure = FakeComm(), Departure()
    comm.is_hanging.add("fetch")
    await run_for(loop_of(comm, Script(), departure), departure, seconds=0.02)


async def test_an_order_to_stop_that_overtakes_its_task_is_kept_for_it() -> None:
    comm, runner, departure = FakeComm(), UntilStopped(), Departure()
    comm.offers = [make_offer(SPEC, attempt_id=4)]
    worker = loop_of(comm, runner, departure)
    worker.stop(4, StopReason.REVOKED)
    worker.stop(99, StopReason.CANCELLED)
    await run_for(worker, departure)
    assert [control.reason for control in runner.controls] == [StopReason.REVOKED]
