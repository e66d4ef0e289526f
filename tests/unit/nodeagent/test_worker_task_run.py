"""The order of a task's steps and what each failure is called."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import msgspec
import pytest

from mitosis_protocol.enums import TaskExecState, TaskResultMessage
from mitosis_protocol.specs import AttachmentRef, RemoteResource, ResourceRef, TaskSpec
from nodeagent.errors import (
    CoordinatorUnavailable,
    ResourceRefused,
    SpawnRefused,
    TaskGone,
)
from nodeagent.worker import artifacts, resources, task_run
from nodeagent.worker.comm import Cancel, Commit, Finish, TaskOffer
from nodeagent.worker.control import StopReason, TaskControl
from nodeagent.worker.task_run import NEVER_RAN_STATUS, TaskRunner
from nodeagent.worker.transfers import Transfers
from nodeagent.worker.workspace import Workspace
from tests.fakes.worker_comm import FakeComm, FakeCommand, FakeTransfers, make_offer

SPEC = TaskSpec(args=["true"])
DATA = ResourceRef(RemoteResource(attachment=AttachmentRef("k")), "f")


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Workspace]:
    workspace = Workspace.create(tmp_path, uuid4())
    yield workspace
    workspace.remove()


class Bench:
    """A TaskRunner among fakes."""

    def __init__(self, space: Workspace) -> None:
        self.space = space
        self.comm = FakeComm()
        self.command = FakeCommand()
        self.store = FakeTransfers()
        self.runner = TaskRunner(
            self.comm, cast("Transfers", self.store), self.command, space, {"PATH": "/bin"}
        )

    async def run(self, offer: TaskOffer, control: TaskControl | None = None) -> None:
        async with asyncio.timeout(5):
            await self.runner.run(offer, control or TaskControl(offer.attempt_id))


@contextmanager
def soon(action: Any, *args: Any) -> Iterator[None]:
    """Do it while the block waits."""
    handle = asyncio.get_running_loop().call_later(0.02, action, *args)
    yield
    handle.cancel()


async def test_a_plain_task_is_finished_and_committed(space: Workspace) -> None:
    bench = Bench(space)
    bench.command.exit(512)
    await bench.run(make_offer(SPEC))
    assert bench.comm.reports == [Finish(), Commit(512)]
    assert bench.command.commands[0].shared_env["PATH"] == "/bin"
    assert bench.command.commands[0].stdout is None


async def test_slow_resources_and_slow_watches_have_their_own_names(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "PER_FILE_S", 0.02)
    bench = Bench(space)
    bench.comm.is_hanging.add("resolve")
    await bench.run(make_offer(TaskSpec(args=[], resources=[DATA])))
    late = Commit(0, TaskResultMessage.FETCH_RESOURCE_TIMEOUT)
    assert bench.comm.reports == [Cancel(), late]

    monkeypatch.setattr(task_run, "PREPARATION_S", 0.02)
    bench = Bench(space)
    await bench.run(make_offer(TaskSpec(args=[], watch=(uuid4(), TaskExecState.EXEC_FINISHED))))
    assert bench.comm.reports == [Cancel(), Commit(0, TaskResultMessage.WATCH_TIMEOUT)]
    assert bench.command.calls == []


async def test_slow_uploads_are_named_and_committed(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "TOTAL_S", 0.05)
    bench = Bench(space)
    bench.store.is_hanging = True
    (space.result_dir / "a").touch()
    bench.command.exit()
    await bench.run(make_offer(SPEC))
    assert bench.comm.reports[-1] == Commit(0, TaskResultMessage.UPLOAD_RESULT_TIMEOUT)


async def test_the_first_trouble_of_a_task_names_it(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "TOTAL_S", 0.05)
    bench = Bench(space)
    bench.store.is_hanging = True
    (space.result_dir / "a").touch()
    space.new_task_file.write_text("nonsense")
    await bench.run(make_offer(SPEC, timeout_s=0.01))
    assert bench.comm.reports[-1] == Commit(15, TaskResultMessage.EXEC_TIMEOUT)


async def test_a_command_that_cannot_start_ends_like_env_itself(space: Workspace) -> None:
    bench = Bench(space)
    bench.command.refusal = SpawnRefused("Argument list too long")
    await bench.run(make_offer(TaskSpec(args=["x"], terminal_output=True)))
    assert bench.comm.reports[0] == Finish()
    assert bench.comm.reports[-1] == Commit(
        NEVER_RAN_STATUS, facts={"refused": "Argument list too long"}
    )
    assert space.stderr_file.read_text() == "mitosis: Argument list too long\n"


async def test_why_a_command_cannot_start_is_in_its_live_output(space: Workspace) -> None:
    bench = Bench(space)
    bench.command.refusal = SpawnRefused("no such file")
    offer = make_offer(TaskSpec(args=["x"]))
    await bench.run(msgspec.structs.replace(offer, live_logs=True))
    assert [chunk.data for chunk in bench.comm.chunks] == [b"mitosis: no such file\n"]


@pytest.mark.parametrize("phase", ["resolve", "read"])
async def test_cancelling_a_task_that_is_still_prepared(space: Workspace, phase: str) -> None:
    bench = Bench(space)
    bench.comm.is_hanging.add(phase)
    watch = (uuid4(), TaskExecState.EXEC_FINISHED)
    control = TaskControl(1)
    with soon(control.stop, StopReason.CANCELLED):
        await bench.run(make_offer(TaskSpec(args=[], resources=[DATA], watch=watch)), control)
    assert bench.comm.reports == [Cancel(), Commit(0, TaskResultMessage.USER_CANCELLATION)]


async def test_a_cancelled_task_submits_no_follow_up(space: Workspace) -> None:
    bench = Bench(space)
    space.new_task_file.write_text("{}")
    control = TaskControl(1)
    with soon(control.stop, StopReason.CANCELLED):
        await bench.run(make_offer(SPEC), control)
    assert bench.comm.reports == [Cancel(), Commit(0, TaskResultMessage.USER_CANCELLATION)]
    assert bench.command.calls == ["start", "terminate"]


async def test_a_cancellation_that_comes_too_late_changes_nothing(space: Workspace) -> None:
    bench = Bench(space)
    bench.command.exit()
    bench.comm.troubles["Commit"] = [CoordinatorUnavailable("later")]
    control = TaskControl(1)
    with soon(control.stop, StopReason.CANCELLED):
        await bench.run(make_offer(SPEC), control)
    assert bench.comm.reports == [Finish(), Commit(0)]


@pytest.mark.parametrize("phase", ["resolve", "Finish", "Commit"])
@pytest.mark.parametrize("reason", [StopReason.REVOKED, StopReason.SHUTDOWN, StopReason.REMOVED])
async def test_a_dropped_task_is_not_mentioned_again(
    space: Workspace, phase: str, reason: StopReason
) -> None:
    bench = Bench(space)
    bench.command.exit()
    bench.comm.is_hanging.add(phase)
    control = TaskControl(1)
    with soon(control.stop, reason):
        await bench.run(make_offer(TaskSpec(args=[], resources=[DATA])), control)
    assert Commit(0) not in bench.comm.reports


async def test_a_task_that_is_gone_is_let_go(space: Workspace) -> None:
    bench = Bench(space)
    bench.command.exit()
    bench.comm.troubles["Finish"] = [TaskGone("404")]
    await bench.run(make_offer(SPEC))
    assert bench.comm.reports == []


async def test_a_resource_we_may_not_have_ends_the_task(space: Workspace) -> None:
    bench = Bench(space)
    bench.comm.troubles["resolve"] = [ResourceRefused("403")]
    await bench.run(make_offer(TaskSpec(args=[], resources=[DATA])))
    assert bench.comm.reports == [Cancel(), Commit(0, TaskResultMessage.RESOURCE_FORBIDDEN)]
