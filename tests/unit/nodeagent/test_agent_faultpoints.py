"""The agent's own faultpoints: frames that got lost or came twice, and a plan for its workers."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from mitosis_protocol import faults
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import ReportAnswer
from nodeagent import events as ev
from nodeagent.ipc.server import WorkerEndpoint, WorkerKey
from nodeagent.pool.launch import (
    SlotPlan,
    SlotSetup,
    WorkerLaunch,
    WorkerStart,
    decode_start,
    encode_start,
)
from nodeagent.shell.correspondence import Correspondence
from nodeagent.shell.workers import LaunchFacts

ACCEPTED = tm.ReportsAccepted(
    request_id=1, results=[tm.ReportResult(task_id=7, answer=ReportAnswer.OK)]
)
TASKS = tm.TasksAvailable(request_id=2)


@pytest.fixture
def posted() -> Iterator[list[ev.Event]]:
    yield []
    faults.configure("")


def _talk(posted: list[ev.Event]) -> Correspondence:
    def measure(_beat: object) -> object:
        raise AssertionError("nobody beats here")

    return Correspondence(posted.append, uuid4(), measure)  # type: ignore[arg-type]


def test_an_answer_can_get_lost_on_its_last_step_and_the_next_one_arrives(posted: list[ev.Event]):
    talk = _talk(posted)
    faults.configure("finish.ack_lost=drop#1")
    talk.on_frame(ACCEPTED)
    assert posted == []
    talk.on_frame(TASKS)
    talk.on_frame(ACCEPTED)
    assert posted == [ev.FrameReceived(TASKS), ev.FrameReceived(ACCEPTED)]


def test_tasks_can_arrive_twice(posted: list[ev.Event]):
    talk = _talk(posted)
    faults.configure("claim.sent_before_agent_store=dup#1")
    talk.on_frame(TASKS)
    assert posted == [ev.FrameReceived(TASKS)] * 2


def test_without_a_plan_every_frame_arrives_once(posted: list[ev.Event]):
    talk = _talk(posted)
    for frame in (TASKS, ACCEPTED):
        talk.on_frame(frame)
    assert posted == [ev.FrameReceived(TASKS), ev.FrameReceived(ACCEPTED)]


def test_a_worker_is_told_the_plan_and_its_commands_are_not():
    facts = LaunchFacts(Path("/work"), {"PATH": "/bin"}, "info", "json", "start.before_exec=kill9")
    launch = WorkerLaunch(
        key=WorkerKey(0, 1),
        endpoint=WorkerEndpoint(
            transport="unix", worker=WorkerKey(0, 1), root="/ipc", directory="/ipc/0"
        ),
        slot=SlotPlan(0),
        suite_uuid=uuid4(),
        work_dir="/var/tmp/slot-0",
        env=facts.env,
        faults=facts.faults,
    )
    heard = decode_start(encode_start(WorkerStart(launch, SlotSetup())), []).launch
    assert heard.faults == "start.before_exec=kill9"
    assert heard.env == {"PATH": "/bin"}
