"""A whole direct worker in this process against a scripted scheduler on a real socket."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import (
    Ack,
    CancelCommand,
    Error,
    Feedback,
    PkgEvent,
    PkgInstall,
    Register,
)
from mitosis_protocol.specs import TaskSpec
from nodeagent.config import WorkerConfig
from nodeagent.direct.worker import DirectWorker
from nodeagent.handlers import Context, Handlers
from nodeagent.worker.departure import Departure
from nodeagent.worker.enrolment import Enrolment
from tests.fakes.control_plane import FakeScheduler, fake_scheduler

Start = Callable[..., AbstractAsyncContextManager[DirectWorker]]


@pytest.fixture
async def scheduler() -> AsyncIterator[FakeScheduler]:
    async with fake_scheduler() as running:
        yield running


@pytest.fixture
def start(scheduler: FakeScheduler, tmp_path: Path) -> Start:
    @asynccontextmanager
    async def started(handlers: Handlers | None = None, **settings: Any):
        config = WorkerConfig(
            coordinator=scheduler.url,
            credential_path=tmp_path / "credentials",
            cache_dir=tmp_path,
            command_env=dict(os.environ),
            user="lab",
            **settings,
        )
        enrolment = Enrolment(uuid4(), "token", "lab")
        worker = DirectWorker(config, enrolment, handlers or Handlers(), Departure())
        running = asyncio.create_task(worker.run())
        waiting = asyncio.create_task(scheduler.until(lambda: scheduler.of(Register)))
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        await waiting
        try:
            yield worker
        finally:
            worker.departure.leave()
            await running

    return started


async def test_a_command_streams_its_output_and_reports_its_status(
    start: Start, scheduler: FakeScheduler
):
    async with start():
        await scheduler.dispatch(1, "sh", "-c", "echo out; echo err >&2; sleep 2; echo end; exit 3")
        await scheduler.until(lambda: any(one.chunks for one in scheduler.of(Feedback)))
        assert scheduler.result(1) is None, "while it runs"
        await scheduler.until(lambda: scheduler.result(1))
    chunks = [chunk for one in scheduler.of(Feedback) for chunk in one.chunks]
    out = {chunk.offset: chunk.content for chunk in chunks if chunk.channel == "stdout"}
    assert b"".join(out[offset] for offset in sorted(out)) == b"out\nend\n"
    assert [chunk.content for chunk in chunks if chunk.channel == "stderr"] == [b"err\n"]
    result = scheduler.result(1)
    assert result is not None
    assert (result.status, result.exit_status) == ("failed", 3 << 8)


async def test_a_handler_is_called_with_its_parameters_and_returns_its_outputs(
    start: Start, scheduler: FakeScheduler
):
    handlers = Handlers()

    @handlers.handler("text.count")
    async def count(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        ctx.feedback(progress=0.5, message="half way", metrics={"lines": 1.0})
        ctx.emit("llm", "token")
        ctx.keep("model-1", {"weights": 3}, type="model")
        return {"words": len(params["text"].split()), "uuid": str(ctx.task_uuid)}

    @handlers.handler("text.use")
    async def use(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"kept": ctx.resource("model-1")}

    @handlers.handler("text.fail")
    async def fail(ctx: Context, params: dict[str, Any]) -> None:
        raise ValueError("no good")

    @handlers.handler("text.exit")
    async def leave(ctx: Context, params: dict[str, Any]) -> None:
        raise SystemExit(3)

    async with start(handlers, concurrency=2) as worker:
        [register] = scheduler.of(Register)
        types = register.capabilities.node_types
        assert types == ["command", "text.count", "text.exit", "text.fail", "text.use"]
        await scheduler.dispatch(1, node_type="text.count", parameters={"text": "a b c"})
        await scheduler.until(lambda: scheduler.result(1))
        result = scheduler.result(1)
        assert result is not None
        assert (result.status, result.outputs["words"]) == ("succeeded", 3)
        [left] = result.artifacts
        assert (left.resource_id, left.worker_id) == ("model-1", worker.worker_uuid)
        told = [one for one in scheduler.of(Feedback) if one.progress is not None]
        assert (told[0].progress, told[0].message, told[0].metrics) == (
            0.5,
            "half way",
            {"lines": 1.0},
        )
        assert [c.text for one in scheduler.of(Feedback) for c in one.chunks] == ["token"]
        await scheduler.dispatch(2, node_type="text.use", resource_refs=[left])
        await scheduler.until(lambda: scheduler.result(2))
        used = scheduler.result(2)
        assert used is not None
        assert used.outputs == {"kept": {"weights": 3}}
        await scheduler.dispatch(3, node_type="text.fail")
        await scheduler.until(lambda: scheduler.result(3))
        failed = scheduler.result(3)
        assert failed is not None
        assert (failed.status, failed.reason) == ("failed", "ValueError: no good")
        chunks = [c for one in scheduler.of(Feedback) if one.task_id == 3 for c in one.chunks]
        assert b"no good" in b"".join(chunk.content for chunk in chunks)
        await scheduler.dispatch(4, node_type="text.exit")
        await scheduler.until(lambda: scheduler.result(4))
        await scheduler.dispatch(5, "true")
        await scheduler.until(lambda: scheduler.result(5))


async def test_cancels_reach_handlers_and_commands(start: Start, scheduler: FakeScheduler):
    handlers = Handlers()
    ends: list[str] = []

    @handlers.handler("wait")
    async def wait(ctx: Context, params: dict[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cleaned up")
            raise

    async with start(handlers, concurrency=2):
        await scheduler.dispatch(1, node_type="wait")
        await scheduler.dispatch(2, "sleep", "60")
        await scheduler.until(lambda: len(scheduler.of(Ack)) >= 2)
        for attempt_id in (1, 2):
            await scheduler.say(CancelCommand(task_id=attempt_id), corr=str(attempt_id))
        await scheduler.until(lambda: scheduler.result(1) and scheduler.result(2))
        for attempt_id in (1, 2):
            result = scheduler.result(attempt_id)
            assert result is not None
            assert result.status == "cancelled"
        assert ends == ["cleaned up"]


async def test_a_timeout_interrupts_a_handler(start: Start, scheduler: FakeScheduler):
    handlers = Handlers()

    @handlers.handler("wait")
    async def wait(ctx: Context, params: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    async with start(handlers):
        await scheduler.dispatch(1, node_type="wait", timeout="1s")
        await scheduler.until(lambda: scheduler.result(1))
    result = scheduler.result(1)
    assert result is not None
    assert result.status == "timeout"


async def test_work_outlives_the_connection_and_its_result_comes_by_the_next(
    start: Start, scheduler: FakeScheduler, tmp_path: Path
):
    gate = tmp_path / "gate"
    script = f"while ! test -e {gate}; do sleep 0.05; done"
    async with start():
        await scheduler.dispatch(1, "sh", "-c", script)
        await scheduler.until(lambda: scheduler.of(Ack))
        await scheduler.lose()
        await scheduler.until(lambda: len(scheduler.of(Register)) == 2)
        again = scheduler.of(Register)[1]
        assert [held.task_id for held in again.inventory] == [1]
        assert not again.is_clean
        gate.touch()
        await scheduler.until(lambda: scheduler.result(1))


async def test_a_result_that_was_swallowed_is_said_again(
    start: Start, scheduler: FakeScheduler, tmp_path: Path
):
    gate = tmp_path / "gate"
    script = f"while ! test -e {gate}; do sleep 0.05; done"
    async with start():
        await scheduler.dispatch(1, "sh", "-c", script)
        await scheduler.until(lambda: scheduler.of(Ack))
        scheduler.is_deaf = True
        gate.touch()
        await asyncio.sleep(1)
        scheduler.is_deaf = False
        await scheduler.until(lambda: scheduler.result(1))


async def test_commands_run_side_by_side_and_one_that_kills_its_launcher_hurts_itself_alone(
    start: Start, scheduler: FakeScheduler, tmp_path: Path
):
    gate = tmp_path / "gate"
    async with start(concurrency=2):
        await scheduler.dispatch(1, "sh", "-c", f"while ! test -e {gate}; do sleep 0.05; done")
        await scheduler.dispatch(2, "sh", "-c", "kill -9 $PPID; sleep 60")
        await scheduler.until(lambda: scheduler.result(2))
        hurt = scheduler.result(2)
        assert hurt is not None
        assert (hurt.status, hurt.signal) == ("crashed", signal.SIGKILL)
        assert scheduler.result(1) is None
        gate.touch()
        await scheduler.until(lambda: scheduler.result(1))
        fine = scheduler.result(1)
        assert fine is not None
        assert fine.status == "succeeded"


async def test_children_of_the_process_outlive_lost_launchers_and_the_worker(
    start: Start, scheduler: FakeScheduler
):
    """A handler's browser, or a store of this test run, is nobody's to kill or to reap."""
    child = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    quick = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.5; exit 7")
    async with start():
        await scheduler.dispatch(1, "sh", "-c", "setsid sleep 61 & kill -9 $PPID; sleep 60")
        await scheduler.until(lambda: scheduler.result(1))
        await scheduler.dispatch(2, "sh", "-c", "kill -STOP $PPID; exit 0")
        await scheduler.until(lambda: scheduler.of(Ack))
    assert child.returncode is None
    assert await quick.wait() == 7
    child.terminate()
    assert await child.wait() == -signal.SIGTERM
    await asyncio.to_thread(_until_gone, "sleep\x0061\x00")


def _until_gone(command_line: str) -> None:
    deadline = time.monotonic() + 10
    while command_line in map(_command_line, psutil.process_iter()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _command_line(process: psutil.Process) -> str:
    try:
        return Path("/proc", str(process.pid), "cmdline").read_text()
    except OSError:
        return ""


async def test_what_it_does_not_know_or_has_no_room_for_is_refused(
    start: Start, scheduler: FakeScheduler
):
    async with start():
        await scheduler.dispatch(1, node_type="nobody")
        await scheduler.until(lambda: scheduler.of(Error))
        await scheduler.dispatch(2, "sleep", "60")
        await scheduler.until(lambda: scheduler.of(Ack))
        await scheduler.dispatch(3, "true")
        await scheduler.until(lambda: len(scheduler.of(Error)) == 2)
        await scheduler.say(CancelCommand(task_id=2, why="revoked"), corr="2")
    codes = [error.code for error in scheduler.of(Error)]
    assert codes == [ControlCode.CMD_UNKNOWN, ControlCode.CMD_CONCURRENCY_VIOLATION]
    assert scheduler.result(2) is None, "revoked means silence"


async def test_without_leave_no_package_is_installed(start: Start, scheduler: FakeScheduler):
    request = PkgInstall(
        op_id=uuid4(), name="p", version="1", url="http://x/", sha256="0" * 64, size_bytes=1
    )
    async with start():
        await scheduler.say(request)
        await scheduler.until(lambda: scheduler.of(PkgEvent))
    [event] = scheduler.of(PkgEvent)
    assert (event.status, event.code) == ("refused", ControlCode.PKG_PERMISSION)


async def test_leaving_kills_the_command_and_says_nothing_about_it(
    start: Start, scheduler: FakeScheduler
):
    async with start():
        await scheduler.dispatch(1, "sleep", "60", spec=TaskSpec(args=["sleep", "60"]))
        await scheduler.until(lambda: scheduler.of(Ack))
    assert scheduler.result(1) is None
