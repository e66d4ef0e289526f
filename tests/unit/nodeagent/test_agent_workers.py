"""Worker slots and what workers ask, in the agent's core."""

from itertools import pairwise

import msgspec
import pytest

from mitosis_protocol import from_manager as fm
from mitosis_protocol import ipc
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import ArtifactContentType, ReportAnswer, TaskExecState, TaskState
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.manager_reports import LogChunk, TaskEvent
from mitosis_protocol.specs import AttachmentRef, RemoteResource
from nodeagent import effects as fx
from nodeagent import events as ev
from tests.fakes.agent_coordinator import AgentCoordinator
from tests.fakes.agent_host import AgentHost
from tests.fakes.agent_suites import make_suite

UPLOAD = {"attempt_id": 1, "content_type": ArtifactContentType.RESULT, "content_length": 10}


@pytest.fixture
def busy(host: AgentHost, coordinator: AgentCoordinator) -> AgentHost:
    """One worker with attempt 1 in hand."""
    coordinator.start(make_suite(1))
    coordinator.give(1)
    return host


def spawn_times(host: AgentHost, until: float) -> list[float]:
    """When the slot was spawned again, if its workers die as soon as they are ready."""
    times: list[float] = []
    while host.now < until:
        for local_id in list(host.workers):
            host.die(host.key(local_id), signal=11)
        if host.taken(fx.SpawnWorker):
            times.append(host.now)
        host.wait(0.25)
    return times


def test_a_worker_that_keeps_dying_is_respawned_at_once_and_then_ever_later(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    host.taken(fx.SpawnWorker)
    start = host.now
    delays = [round(one - start) for one in spawn_times(host, start + 120)]
    gaps = [later - earlier for earlier, later in pairwise(delays)]
    assert delays[0] == 0
    assert gaps[:6] == [1, 2, 4, 8, 16, 30]


def test_a_worker_that_did_its_work_is_respawned_at_once(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(2, 8))
    coordinator.give(*range(1, 11))
    for _ in range(4):
        host.finish(host.key(1))
        host.die(host.key(1), signal=9)
        assert set(host.workers) == {0, 1}


def test_every_spawn_has_a_generation_of_its_own(busy: AgentHost):
    first = busy.key()
    busy.die(first, signal=9)
    second = busy.key()
    assert (first.local_id, second.local_id) == (0, 0)
    assert first.generation != second.generation
    # The dead one cannot speak for the living one.
    answer = busy.ask(first, ipc.FinishTask, attempt_id=1, exit_status=0)
    assert isinstance(answer, ipc.Refused)
    assert answer.is_gone


def test_a_worker_that_never_connects_is_killed_and_after_five_tries_the_suite_fails(
    host: AgentHost,
):
    host.is_auto = False
    coordinator = AgentCoordinator(host)
    coordinator.boot()
    coordinator.connect()
    coordinator.assign(make_suite(1))
    for _ in range(400):
        host.from_ipc.clear()
        host.later = [one for one in host.later if not isinstance(one, ev.WorkerSpawned)]
        while host.later:
            host.do(host.later.pop(0))
            host.from_ipc.clear()
        host.wait(1, step=1)
        failed = host.sent(fm.SuiteFailed)
        if failed:
            break
    assert failed[0].phase == "preparation"
    assert "before they connect" in failed[0].stderr_tail
    assert len(host.taken(fx.KillWorker)) == 5


def test_a_spawn_that_fails_is_tried_again(host: AgentHost):
    host.is_auto = False
    coordinator = AgentCoordinator(host)
    coordinator.boot()
    coordinator.connect()
    coordinator.assign(make_suite(1))
    for _ in range(3):
        host.do(host.later.pop(0))
    [spawn] = host.taken(fx.SpawnWorker)
    host.workers.clear()
    host.do(ev.SpawnFailed(spawn.worker, "out of memory"))
    assert len(host.taken(fx.SpawnWorker)) == 1


def test_a_worker_that_fetches_again_without_a_report_has_crashed(busy: AgentHost):
    busy.do(ev.WorkerParked(busy.key()))
    [line] = busy.outbox.values()
    assert line.op == "failure"


def test_a_worker_may_only_end_what_it_holds(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(2))
    coordinator.give(1, 2)
    answer = host.ask(host.key(0), ipc.FinishTask, attempt_id=2, exit_status=0)
    assert isinstance(answer, ipc.Refused)
    assert answer.is_gone
    assert not host.outbox


def test_an_upload_is_answered_with_its_link(busy: AgentHost):
    token = busy.ask_only(busy.key(), ipc.RequestUpload, **UPLOAD)
    [frame] = busy.sent(fm.ReportTask)
    assert frame.op.upload.content_length == 10
    ack = tm.TaskReportAck(request_id=frame.request_id, success=True, url="https://store")
    busy.frame(ack)
    busy.frame(ack)
    assert busy.answers[token] == ipc.UploadReply(request_id=token.request_id, url="https://store")


@pytest.mark.parametrize(
    ("answer", "is_retryable", "is_gone"),
    [
        (ReportAnswer.RETRY_LATER, True, False),
        (ReportAnswer.STALE_ATTEMPT, False, True),
        (ReportAnswer.INVALID, False, False),
    ],
)
def test_a_refused_upload_says_why(busy: AgentHost, answer, is_retryable: bool, is_gone: bool):
    token = busy.ask_only(busy.key(), ipc.RequestUpload, **UPLOAD)
    [frame] = busy.sent(fm.ReportTask)
    busy.frame(tm.TaskReportAck(request_id=frame.request_id, success=False, answer=answer))
    refused = busy.answers[token]
    assert isinstance(refused, ipc.Refused)
    assert (refused.is_retryable, refused.is_gone) == (is_retryable, is_gone)
    assert bool(busy.taken(fx.Publish)) is is_gone


def test_a_refused_upload_brings_the_coordinators_reason(busy: AgentHost):
    token = busy.ask_only(busy.key(), ipc.RequestUpload, **UPLOAD)
    [frame] = busy.sent(fm.ReportTask)
    code, text = ErrorCode.QUOTA_EXCEEDED, "the storage of the group is full"
    busy.frame(
        tm.TaskReportAck(
            request_id=frame.request_id,
            success=False,
            answer=ReportAnswer.INVALID,
            code=code,
            message=text,
        )
    )
    refused = busy.answers[token]
    assert isinstance(refused, ipc.Refused)
    assert (refused.code, refused.message) == (code, text)


def test_without_a_link_a_worker_is_told_to_try_again(busy: AgentHost):
    before = busy.ask_only(busy.key(), ipc.RequestUpload, **UPLOAD)
    busy.do(ev.LinkLost())
    after = busy.ask_only(busy.key(), ipc.RequestUpload, **UPLOAD)
    for token in (before, after):
        answer = busy.answers[token]
        assert isinstance(answer, ipc.Refused)
        assert answer.is_retryable


def test_an_error_instead_of_links_is_handed_on(busy: AgentHost):
    files = [RemoteResource(attachment=AttachmentRef("a"))]
    token = busy.ask_only(busy.key(), ipc.ResolveResources, attempt_id=1, resources=files)
    [frame] = busy.sent(fm.ResolveResources)
    busy.frame(tm.Error(code=ErrorCode.OBJECT_NOT_FOUND, message="no", request_id=frame.request_id))
    assert busy.answers[token].code is ErrorCode.OBJECT_NOT_FOUND


def test_links_that_come_in_parts_are_answered_together(busy: AgentHost):
    files = [RemoteResource(attachment=AttachmentRef("a")) for _ in range(2)]
    token = busy.ask_only(busy.key(), ipc.ResolveResources, attempt_id=1, resources=files)
    [frame] = busy.sent(fm.ResolveResources)
    parts = [tm.ResolvedResource(url="https://1"), tm.ResolvedResource(url="https://2")]
    busy.frame(
        tm.ResourcesResolved(request_id=frame.request_id, resources=parts[:1], has_more=True)
    )
    assert token not in busy.answers
    busy.frame(tm.ResourcesResolved(request_id=frame.request_id, resources=parts[1:]))
    assert busy.answers[token] == ipc.ResolveReply(request_id=token.request_id, resources=parts)


def test_a_follow_up_keeps_its_op_id_however_often_it_is_submitted(busy: AgentHost):
    body = {"group_name": "g", "timeout": "1m", "task_spec": {"args": ["true"]}}
    request = msgspec.json.encode(body)
    ops = []
    for _ in range(2):
        busy.ask_only(busy.key(), ipc.SubmitFollowUp, attempt_id=1, request=request)
        [frame] = busy.sent(fm.ReportTask)
        ops.append(frame.op.submit.op_id)
        busy.do(ev.RequestTimedOut(frame.request_id))
    assert ops[0] == ops[1]
    token = busy.ask_only(busy.key(), ipc.SubmitFollowUp, attempt_id=1, request=request)
    [frame] = busy.sent(fm.ReportTask)
    busy.frame(tm.TaskReportAck(request_id=frame.request_id, success=True))
    assert isinstance(busy.answers[token], ipc.Done)


def test_a_follow_up_that_is_no_task_is_refused_at_once(busy: AgentHost):
    answer = busy.ask(busy.key(), ipc.SubmitFollowUp, attempt_id=1, request=b'{"args": 1}')
    assert isinstance(answer, ipc.Refused)
    assert not answer.is_retryable


def test_the_state_of_another_task_is_read_by_the_shell(busy: AgentHost):
    other = make_suite().uuid
    token = busy.ask_only(busy.key(), ipc.ReadTask, attempt_id=1, task_uuid=other)
    [read] = busy.taken(fx.ReadTaskState)
    assert (read.token, read.task_uuid) == (token, other)
    busy.do(ev.TaskRead(token, TaskState.FINISHED))
    busy.do(ev.TaskRead(token, TaskState.FINISHED))
    assert busy.answers[token].state is TaskState.FINISHED


def test_news_of_the_own_attempt_go_out_with_the_next_tick_and_others_do_not(busy: AgentHost):
    mine = TaskEvent(task_id=1, exec_state=TaskExecState.EXEC_SPAWNED)
    theirs = TaskEvent(task_id=2, exec_state=TaskExecState.EXEC_SPAWNED)
    assert isinstance(busy.ask(busy.key(), ipc.NoteEvents, events=[mine, theirs]), ipc.Done)
    busy.wait(0.25)
    [frame] = busy.sent(fm.TaskEvents)
    assert frame.events == [mine]


def test_much_output_is_split_into_frames(busy: AgentHost):
    data = bytes(300 * 1024)
    news = TaskEvent(task_id=1, log=LogChunk("stdout", 5, data))
    busy.ask(busy.key(), ipc.NoteEvents, events=[news])
    busy.wait(0.25)
    frames = busy.sent(fm.TaskEvents)
    chunks = [event.log for frame in frames for event in frame.events]
    assert b"".join(one.data for one in chunks) == data
    assert [one.offset for one in chunks] == [5 + n * 96 * 1024 for n in range(4)]
    assert all(len(msgspec.json.encode(frame)) < 256 * 1024 for frame in frames)


def test_news_are_dropped_without_a_link(busy: AgentHost):
    busy.do(ev.LinkLost())
    assert isinstance(busy.ask(busy.key(), ipc.NoteEvents, events=[]), ipc.Done)
    busy.wait(1)
    assert not busy.sent(fm.TaskEvents)
