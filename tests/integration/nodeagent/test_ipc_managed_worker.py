"""A managed worker as it runs on a host: forked by the pool, in its slot, over real IPC."""

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mitosis_protocol.enums import ArtifactContentType, TaskExecState, TaskResultMessage
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.ipc import (
    CancelTask,
    CrashTask,
    Done,
    DropTask,
    FinishTask,
    FromWorker,
    Heartbeat,
    NoteEvents,
    Refused,
    RequestUpload,
    Shutdown,
    StartReply,
    StartTask,
    SubmitFollowUp,
    ToWorker,
    WorkerSettings,
)
from mitosis_protocol.suites import ResourceLimits
from nodeagent.failures import ExitReason
from nodeagent.ipc.server import OfferTaken, WorkerParked
from tests.fakes.managed_lab import WORKER, ManagedLab, managed_worker


@pytest.fixture
async def lab() -> AsyncIterator[ManagedLab]:
    async with managed_worker("iceoryx2") as lab:
        yield lab


@pytest.mark.parametrize("transport", ["iceoryx2", "unix"])
async def test_tasks_run_one_after_another_and_are_finished(transport: str) -> None:
    async with managed_worker(transport) as lab:  # type: ignore[arg-type]  # a literal, as listed
        for attempt_id in (1, 2, 3):
            lab.put(attempt_id, f"exit {attempt_id - 1}")
        ends = [await lab.word(FinishTask, attempt_id) for attempt_id in (1, 2, 3)]
        assert [end.exit_status for end in ends] == [0, 1 << 8, 2 << 8]
        assert all(end.msg is None and end.facts["max_rss_kib"] for end in ends)
        lab.server.publish(Shutdown(graceful=True))
        await lab.until(lambda: lab.exits == [ExitReason(code=0)], "a polite end")


async def test_a_command_ended_by_a_foreign_signal_is_a_crash(lab: ManagedLab) -> None:
    lab.put(1, "kill -SEGV $$")
    lab.put(2, "true")
    crash = await lab.word(CrashTask, 1)
    assert crash.signal == signal.SIGSEGV
    assert "SIGSEGV" in crash.reason
    await lab.word(FinishTask, 2)
    assert len(lab.said(FinishTask)) == 1


async def test_a_crashed_command_submits_no_follow_up(lab: ManagedLab) -> None:
    lab.put(1, "echo '{}' > $MITO_NEW_TASK; kill -ABRT $$")
    await lab.word(CrashTask, 1)
    lab.put(2, "echo '{\"a\": 1}' > $MITO_NEW_TASK")
    follow_up = await lab.word(SubmitFollowUp, 2)
    assert json.loads(follow_up.request) == {"a": 1}
    assert (await lab.word(FinishTask, 2)).msg is None
    assert len(lab.said(SubmitFollowUp)) == 1


async def test_a_cancelled_task_is_stopped_and_reported(lab: ManagedLab) -> None:
    lab.put(1, "echo $$ > $MITO_EXEC_DIR/pid; sleep 600")
    pid_file = lab.home / "workers" / "0" / "task" / "exec" / "pid"
    await _text_of(lab, pid_file)
    pid = int(pid_file.read_text())
    lab.answers[RequestUpload] = _no_quota
    lab.server.publish(CancelTask(attempt_id=1))
    end = await lab.word(FinishTask, 1)
    assert (end.exit_status, end.msg) == (0, TaskResultMessage.USER_CANCELLATION)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_revoked_task_is_dropped_in_silence(lab: ManagedLab) -> None:
    lab.put(1, "sleep 600")
    await lab.until(lambda: bool(lab.said(NoteEvents)), "it has run for a while")
    lab.server.publish(CancelTask(attempt_id=1, why="revoked"))
    drop = await lab.word(DropTask, 1)
    assert drop.has_started
    lab.put(2, "true")
    await lab.word(FinishTask, 2)
    assert [end.attempt_id for end in lab.said(FinishTask)] == [2]


async def test_a_task_that_needs_a_permit_runs_only_with_it(lab: ManagedLab) -> None:
    ran = lab.home / "workers" / "0" / "task" / "result"
    lab.answers[StartTask] = lambda m: StartReply(request_id=m.request_id, may_run=False)
    lab.put(1, "touch $MITO_RESULT_DIR/ran", needs_permit=True)
    drop = await lab.word(DropTask, 1)
    assert not drop.has_started
    assert list(ran.iterdir()) == []
    del lab.answers[StartTask]
    lab.put(2, "true", needs_permit=True)
    await lab.word(FinishTask, 2)
    assert [start.attempt_id for start in lab.said(StartTask)] == [1, 2]


async def test_time_up_ends_the_command(lab: ManagedLab) -> None:
    lab.put(1, "sleep 600", timeout="1s")
    assert (await lab.word(FinishTask, 1)).msg is TaskResultMessage.EXEC_TIMEOUT


async def test_results_ask_for_an_upload_and_go_without_when_there_is_no_quota(
    lab: ManagedLab,
) -> None:
    lab.answers[RequestUpload] = _no_quota
    lab.put(1, "echo hello > $MITO_RESULT_DIR/file")
    upload = await lab.word(RequestUpload, 1)
    assert upload.content_type is ArtifactContentType.RESULT
    assert upload.content_length > 0
    end = await lab.word(FinishTask, 1)
    assert (end.exit_status, end.msg) == (0, None)


async def test_nothing_of_a_task_is_there_for_the_next_one(lab: ManagedLab) -> None:
    lab.answers[RequestUpload] = _no_quota
    lab.put(
        1,
        "cd $MITO_EXEC_DIR; mkdir -p a/b; touch a/b/c; ln -s /etc link; chmod 0 a/b; "
        "touch ../stray; rmdir ../resource; ln -s /etc ../resource; chmod 755 ../result",
    )
    await lab.word(FinishTask, 1)
    look = "cd $MITO_EXEC_DIR/..; find . | sort | tr '\\n' ' '; stat -c %a result exec resource"
    lab.put(2, f'test "$({look} | tr "\\n" " ")" = ". ./exec ./resource ./result 700 700 700 "')
    assert (await lab.word(FinishTask, 2)).exit_status == 0


async def test_an_output_file_is_used_again_only_if_nothing_happened_to_it(
    lab: ManagedLab,
) -> None:
    lab.answers[RequestUpload] = _no_quota
    out = lab.home / "workers" / "0" / "std" / "stdout.log"

    async def inode_after(attempt_id: int, script: str) -> int:
        lab.put(attempt_id, f"sleep 0.05; {script}", terminal_output=True)
        await lab.until(out.exists, "it runs")
        inode = out.stat().st_ino
        assert (await lab.word(FinishTask, attempt_id)).exit_status == 0
        await lab.until(lambda: lab.parked == attempt_id, "it waits for more")
        return inode

    untouched = await inode_after(1, "true")
    assert out.stat().st_ino == untouched
    assert await inode_after(2, "ln -L /proc/$$/fd/1 $MITO_EXEC_DIR/mine") == untouched
    assert not out.exists(), "somebody may still know it by another name"
    await inode_after(3, "echo words")
    assert not out.exists()
    await inode_after(4, "chmod 644 /proc/$$/fd/1")
    assert not out.exists()


async def test_a_command_cannot_speak_for_its_worker(lab: ManagedLab) -> None:
    """It sees neither the IPC root nor the worker's output and memory, if it is somebody else."""
    if not lab.pool.sandbox.is_separate:
        pytest.skip("this host has no users to spare for commands")
    probes = (
        f"ls {lab.home}/ipc",
        f"ls {lab.home}/workers/0/std",
        f"cat /proc/{lab.pid}/environ",
        f"kill -0 {lab.pid}",
        "cat /dev/shm/mito_*",
    )
    lab.put(1, "; ".join(f"if {probe}; then exit 1; fi" for probe in probes))
    assert (await lab.word(FinishTask, 1)).exit_status == 0


async def test_output_and_stages_of_a_running_task_are_told() -> None:
    settings = WorkerSettings(log_bytes_per_s=64 * 1024)
    async with managed_worker("iceoryx2", settings) as lab:
        lab.put(1, "echo out; echo err >&2; sleep 3; echo last")
        await lab.until(lambda: _output(lab, "stdout") == b"out\n", "the first words, as it runs")
        assert lab.said(FinishTask) == []
        await lab.word(FinishTask, 1)
        assert (_output(lab, "stdout"), _output(lab, "stderr")) == (b"out\nlast\n", b"err\n")
        states = {e.exec_state for note in lab.said(NoteEvents) for e in note.events}
        assert TaskExecState.EXEC_SPAWNED in states
        # A short one is over before anybody could look.
        told = len(lab.said(NoteEvents))
        lab.put(2, "true")
        await lab.word(FinishTask, 2)
        assert len(lab.said(NoteEvents)) == told


async def test_heartbeats_go_on_while_a_task_runs(lab: ManagedLab) -> None:
    lab.put(1, "sleep 600")
    await lab.until(lambda: any(b.attempt_id == 1 for b in lab.said(Heartbeat)), "a beat with it")
    before = len(lab.said(Heartbeat))
    await lab.until(lambda: len(lab.said(Heartbeat)) > before + 2, "more beats")


async def test_a_limit_that_cannot_be_enforced_fails_the_task_with_a_reason(
    lab: ManagedLab,
) -> None:
    limits = ResourceLimits(memory=64 << 20)
    lab.put(1, "true", limits=limits)
    end = await lab.word(FinishTask, 1)
    if "refused" in end.facts:
        assert end.exit_status == 125 << 8
    else:
        assert end.facts["peak_memory_bytes"]


@pytest.mark.parametrize("transport", ["iceoryx2", "unix"])
async def test_a_worker_ends_when_its_agent_is_gone(transport: str) -> None:
    async with managed_worker(transport) as lab:  # type: ignore[arg-type]  # a literal, as listed
        lab.put(1, "sleep 600")
        await lab.until(lambda: lab.has(OfferTaken), "taken")
        lab.server.close()
        await lab.until(lambda: bool(lab.exits), "its end")
        assert lab.exits == [ExitReason(code=0)]


async def test_an_idle_worker_dies_of_sigterm_and_gives_back_what_it_holds(
    lab: ManagedLab,
) -> None:
    lab.put(1, "sleep 600")
    await lab.until(lambda: lab.has(OfferTaken), "taken")
    os.kill(lab.pid, signal.SIGTERM)
    assert (await lab.word(DropTask, 1)).attempt_id == 1
    await lab.until(lambda: lab.exits == [ExitReason(code=0)], "its end")


async def test_a_report_that_must_be_tried_again_is(lab: ManagedLab) -> None:
    tries: list[FromWorker] = []

    def reluctant(message: FromWorker) -> ToWorker:
        tries.append(message)
        if len(tries) < 3:
            return Refused(
                request_id=message.request_id,
                code=ErrorCode.DEPENDENCY_UNAVAILABLE,
                message="the disk is full",
                is_retryable=True,
            )
        return Done(request_id=message.request_id)

    lab.answers[FinishTask] = reluctant
    lab.put(1, "true")
    await lab.until(lambda: len(tries) == 3, "three tries")
    await lab.until(lambda: isinstance(lab.events[-1], WorkerParked), "back for more")
    assert lab.said(DropTask) == []
    assert WORKER in lab.pool.running


def _no_quota(message: FromWorker) -> ToWorker:
    return Refused(
        request_id=message.request_id, code=ErrorCode.QUOTA_EXCEEDED, message="nothing is left"
    )


def _output(lab: ManagedLab, stream: str) -> bytes:
    logs = [e.log for note in lab.said(NoteEvents) for e in note.events if e.log is not None]
    return b"".join(log.data for log in logs if log.stream == stream)


async def _text_of(lab: ManagedLab, file: Path) -> None:
    """Heartbeats wake the lab often enough to look again."""
    await lab.until(lambda: file.exists() and bool(file.read_text()), f"{file.name} is written")
