"""Stopping: who wins, what is cancelled, and in which order signals are sent."""

import asyncio
import threading

import pytest

from nodeagent.errors import WorkerRemoved
from nodeagent.worker import executor
from nodeagent.worker.control import Stopped, StopReason, TaskControl
from nodeagent.worker.departure import Departure
from nodeagent.worker.executor import EndCause, run_command
from nodeagent.worker.launcher import Command
from nodeagent.worker.threads import run_blocking
from tests.fakes.worker_comm import FakeCommand

COMMAND = Command(argv=["true"], env={})


async def test_a_command_that_ends_by_itself_gets_no_signal() -> None:
    runner = FakeCommand()
    runner.exit(256)
    end = await run_command(runner, COMMAND, timeout_s=9, control=TaskControl(1))
    assert (end.cause, end.exit.status, runner.calls) == (EndCause.EXITED, 256, ["start"])


async def test_time_up_asks_first_and_kills_after_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor, "TIMEOUT_GRACE_S", 0.01)
    polite = FakeCommand()
    end = await run_command(polite, COMMAND, timeout_s=0.01, control=TaskControl(1))
    assert (end.cause, end.exit.status) == (EndCause.TIMED_OUT, 15)
    assert polite.calls == ["start", "terminate"]
    stubborn = FakeCommand(obeys=frozenset({"kill"}))
    end = await run_command(stubborn, COMMAND, timeout_s=0.01, control=TaskControl(1))
    assert (end.cause, end.exit.status) == (EndCause.TIMED_OUT, 9)
    assert stubborn.calls == ["start", "terminate", "kill"]


@pytest.mark.parametrize("reason", [StopReason.SHUTDOWN, StopReason.REMOVED])
async def test_an_urgent_stop_leaves_no_grace(reason: StopReason) -> None:
    runner = FakeCommand(obeys=frozenset({"kill"}))
    control = TaskControl(1)
    control.stop(reason)
    async with asyncio.timeout(1):
        end = await run_command(runner, COMMAND, timeout_s=9, control=control)
    assert (end.cause, runner.calls) == (EndCause.STOPPED, ["start", "terminate", "kill"])


async def test_tearing_down_kills_the_command() -> None:
    runner = FakeCommand(obeys=frozenset({"kill"}))
    run = asyncio.create_task(run_command(runner, COMMAND, timeout_s=9, control=TaskControl(1)))
    await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert runner.calls == ["start", "kill"]


async def test_a_stronger_reason_replaces_a_weaker_one_only() -> None:
    control = TaskControl(1)
    control.stop(StopReason.CANCELLED)
    assert not control.is_dropped
    control.stop(StopReason.REVOKED)
    assert (control.reason, control.is_dropped) == (StopReason.REVOKED, True)
    control.stop(StopReason.CANCELLED)
    assert control.reason is StopReason.REVOKED


async def test_guard_cancels_the_step_and_names_the_reason() -> None:
    control = TaskControl(1)
    ended = asyncio.Event()

    async def step() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    asyncio.get_running_loop().call_later(0.01, control.stop, StopReason.REVOKED)
    with pytest.raises(Stopped) as caught:
        await control.guard(step())
    assert caught.value.reason is StopReason.REVOKED
    assert ended.is_set()


async def test_check_raises_only_after_a_stop() -> None:
    control = TaskControl(1)
    control.check()
    control.stop(StopReason.CANCELLED)
    with pytest.raises(Stopped):
        control.check()


async def test_a_cancellation_lets_the_reports_of_a_task_go_on() -> None:
    control = TaskControl(1)
    control.stop(StopReason.CANCELLED)
    assert await control.guard(asyncio.sleep(0.01, "done"), only_if_dropped=True) == "done"


async def test_the_error_of_a_guarded_step_is_its_own() -> None:
    async def step() -> None:
        raise WorkerRemoved("gone")

    with pytest.raises(WorkerRemoved):
        await TaskControl(1).guard(step())


async def test_departure_ends_pauses_and_steps() -> None:
    departure = Departure()
    asyncio.get_running_loop().call_later(0.01, departure.hurry)
    async with asyncio.timeout(1):
        await departure.sleep(60)
        await departure.sleep_unless_hurried(60)
        with pytest.raises(Stopped):
            await departure.unless_asked(asyncio.sleep(60))


async def test_a_cancelled_blocking_call_is_waited_for() -> None:
    release, ended = threading.Event(), threading.Event()

    def block() -> None:
        release.wait(5)
        ended.set()

    call = asyncio.create_task(run_blocking(block))
    await asyncio.sleep(0.01)
    call.cancel()
    asyncio.get_running_loop().call_later(0.02, release.set)
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ended.is_set()
