"""The messages of the manager socket: every member survives its way, and strangers are refused."""

import json
from typing import Any, get_args
from uuid import uuid4

import jsonschema
import msgspec
import pytest

from mitosis_protocol import schema
from mitosis_protocol.codec import DecodeFailed
from mitosis_protocol.enums import (
    AssignmentState,
    DesiredState,
    ManagerState,
    Outcome,
    ReportAnswer,
    TaskExecState,
)
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.from_manager import (
    FROM_MANAGER,
    AbortTask,
    FetchTask,
    FetchTasks,
    FromManager,
    Heartbeat,
    Hello,
    ManagerMetrics,
    ReportFailure,
    ReportTask,
    ReportTasks,
    ResolveResources,
    ReturnTasks,
    SuiteCompleted,
    SuiteFailed,
    TaskEvents,
)
from mitosis_protocol.limits import MAX_FRAME_BYTES
from mitosis_protocol.manager_reports import (
    CancelOp,
    CommitOp,
    FinishOp,
    LogChunk,
    ReportTaskOp,
    SubmitOp,
    TaskEvent,
    TaskReport,
    UploadOp,
)
from mitosis_protocol.specs import AttachmentRef, RemoteResource, TaskSpec, WorkerSchedule
from mitosis_protocol.to_manager import (
    TO_MANAGER,
    CancelSuite,
    CancelTask,
    ConfigUpdate,
    Engagement,
    Error,
    HeartbeatAck,
    OfferedTask,
    Pause,
    Reconciliation,
    ReportResult,
    ReportsAccepted,
    ResolvedResource,
    ResourcesResolved,
    Resume,
    ReturnSurplus,
    Shutdown,
    SuiteAssigned,
    SuiteDrained,
    SuiteReportAck,
    TaskAvailable,
    TaskReportAck,
    TasksAvailable,
    TasksReady,
    TaskSuiteSpec,
    ToManager,
    Welcome,
)

U = uuid4()
SPEC = TaskSpec(args=["true"], envs={"A": "b"})
OFFER = OfferedTask(task_id=7, task_uuid=U, spec=SPEC, priority=3, timeout="1m")
SUITE = TaskSuiteSpec(
    uuid=U,
    name="n",
    description="d",
    group_id=1,
    tags=["gpu"],
    labels=[],
    priority=0,
    worker_schedule=WorkerSchedule(worker_count=2),
)
ENGAGED = Engagement(assignment_id=5, suite_uuid=U, state=AssignmentState.EXECUTING)
OPS = [
    "Finish",
    "Cancel",
    "Commit",
    ReportTaskOp(finish=FinishOp(exit_code=1)),
    ReportTaskOp(cancel=CancelOp(reason="r")),
    ReportTaskOp(commit=CommitOp(exit_status=0, outcome=Outcome.OOM, op_id=U)),
    ReportTaskOp(upload=UploadOp(content_length=5, artifact_path="result.tar.gz")),
    ReportTaskOp(submit=SubmitOp(group_name="g", timeout="1m", task_spec=SPEC)),
]
SAID: list[FromManager] = [
    Hello(request_id=1, process_id=U, inventory=[1, 2], suite_uuid=U, is_clean=True),
    Heartbeat(manager_uuid=U, state=ManagerState.IDLE, metrics=ManagerMetrics(active_workers=3)),
    Heartbeat(
        manager_uuid=U,
        state=ManagerState.EXECUTING,
        metrics=ManagerMetrics(families={"cpu": {"load": 0.5, "model": "x", "ok": True}}),
        request_id=2,
        inventory=[1],
        config_version=3,
    ),
    FetchTask(request_id=3, worker_local_id=4),
    FetchTasks(request_id=5, max_tasks=64, claim_id=U, assignment_id=6),
    *[ReportTask(request_id=6, task_id=7, op=op) for op in OPS],
    ReportTasks(
        request_id=8,
        reports=[TaskReport(task_id=1, op="commit", op_id=U, result={"peak": 1, "x": None})],
    ),
    ReportFailure(task_uuid=U, failure_count=1, error_message="e", worker_local_id=0, signal=11),
    AbortTask(task_uuid=U, reason="r"),
    ReturnTasks(request_id=9, task_ids=[1]),
    TaskEvents(
        events=[
            TaskEvent(task_id=1, exec_state=TaskExecState.EXEC_SPAWNED, progress={"p": 0.5}),
            TaskEvent(task_id=1, log=LogChunk("stdout", 0, b"\xff\x00")),
        ]
    ),
    ResolveResources(
        request_id=10,
        resources=[RemoteResource(attachment=AttachmentRef(key="k"))],
        task_id=1,
    ),
    SuiteCompleted(suite_uuid=U, tasks_completed=1, tasks_failed=0),
    SuiteFailed(suite_uuid=U, phase="preparation", exit_code=1, stderr_tail="t"),
]
ANSWERED: list[ToManager] = [
    Welcome(
        request_id=1,
        protocol_version=1,
        manager_uuid=U,
        session_epoch=2,
        lease="2m",
        heartbeat_interval="30s",
        config_version=1,
        desired_state=DesiredState.ACTIVE,
        engagement=ENGAGED,
        suite_spec=SUITE,
        held=Reconciliation(adopted=[1]),
    ),
    HeartbeatAck(request_id=1, lease="2m", config_version=1, desired_state=DesiredState.DRAINING),
    SuiteAssigned(suite_uuid=U, suite_spec=SUITE, assignment_id=5),
    TaskAvailable(request_id=1, task=OFFER),
    TaskAvailable(request_id=1),
    TasksAvailable(request_id=1, tasks=[OFFER], has_more=True),
    TaskReportAck(request_id=1, success=True, url="http://x", answer=ReportAnswer.OK),
    ReportsAccepted(request_id=1, results=[ReportResult(task_id=1, answer=ReportAnswer.OK)]),
    ResourcesResolved(request_id=1, resources=[ResolvedResource(url="http://x", size=3)]),
    SuiteReportAck(request_id=1, success=True),
    CancelTask(task_uuid=U, reason="r"),
    CancelSuite(suite_uuid=U, reason="r", cancel_running_tasks=True),
    SuiteDrained(assignment_id=1, suite_uuid=U, reason="done"),
    Pause(suite_uuid=U),
    Resume(suite_uuid=U),
    ConfigUpdate(lease_duration="1h", heartbeat_interval="30s", version=2),
    Shutdown(graceful=True),
    Error(code=ErrorCode.PROTOCOL_MALFORMED, message="m", request_id=1),
    TasksReady(suite_uuid=U),
    ReturnSurplus(suite_uuid=U, keep=4, task_ids=[7]),
]


def tag_of(kind: type[Any]) -> str:
    return str(kind.__struct_config__.tag)


@pytest.mark.parametrize("message", SAID, ids=lambda message: tag_of(type(message)))
def test_what_a_manager_says_survives_its_way(message: FromManager):
    assert FROM_MANAGER.decode(FROM_MANAGER.encode(message)) == message


@pytest.mark.parametrize("message", ANSWERED, ids=lambda message: tag_of(type(message)))
def test_what_the_coordinator_says_survives_its_way(message: ToManager):
    assert TO_MANAGER.decode(TO_MANAGER.encode(message)) == message


@pytest.mark.parametrize(
    ("union", "messages"), [(FromManager, SAID), (ToManager, ANSWERED)], ids=["from", "to"]
)
def test_every_member_of_a_union_is_tried_and_fits_the_published_schema(union: Any, messages: Any):
    assert {type(message) for message in messages} == set(get_args(union))
    validator = jsonschema.Draft202012Validator(schema.schema_of(union))
    for message in messages:
        validator.validate(json.loads(msgspec.json.encode(message)))


def test_the_messages_of_the_rfc_have_their_names_and_fields():
    said = {
        "heartbeat": {"manager_uuid", "state", "metrics"},
        "fetch_task": {"request_id", "worker_local_id"},
        "report_task": {"request_id", "task_id", "op"},
        "report_failure": {"task_uuid", "failure_count", "error_message", "worker_local_id"},
        "abort_task": {"task_uuid", "reason"},
        "suite_completed": {"suite_uuid", "tasks_completed", "tasks_failed"},
    }
    answered = {
        "suite_assigned": {"suite_uuid", "suite_spec"},
        "task_available": {"request_id", "task"},
        "task_report_ack": {"request_id", "success", "url"},
        "cancel_task": {"task_uuid", "reason"},
        "cancel_suite": {"suite_uuid", "reason", "cancel_running_tasks"},
        "config_update": {"lease_duration", "heartbeat_interval"},
        "shutdown": {"graceful"},
    }
    for union, wanted in ((FromManager, said), (ToManager, answered)):
        kinds = {tag_of(kind): kind for kind in get_args(union)}
        for tag, fields in wanted.items():
            assert fields <= set(kinds[tag].__struct_fields__), tag


def test_only_the_rfcs_fields_of_a_managers_message_are_required():
    """So that a client of the RFC alone is understood."""
    metrics = {
        name: 0
        for name in ManagerMetrics.__struct_fields__
        if name not in {"families", "cpu_usage_percent"}
    } | {"cpu_usage_percent": 12.5}
    for body in (
        {"type": "heartbeat", "manager_uuid": str(U), "state": "Idle", "metrics": metrics},
        {"type": "fetch_task", "request_id": 1, "worker_local_id": 2},
        {"type": "report_task", "request_id": 1, "task_id": 2, "op": "Commit"},
        {"type": "report_task", "request_id": 1, "task_id": 2, "op": {"Finish": {"exit_code": 0}}},
        {"type": "report_failure", "task_uuid": str(U), "failure_count": 1, "error_message": "",
         "worker_local_id": 0},
        {"type": "abort_task", "task_uuid": str(U), "reason": ""},
        {"type": "suite_completed", "suite_uuid": str(U), "tasks_completed": 0, "tasks_failed": 0},
    ):  # fmt: skip
        FROM_MANAGER.decode(json.dumps(body))


@pytest.mark.parametrize(
    "body",
    [
        {"type": "fetch_task", "request_id": -1, "worker_local_id": 0},
        {"type": "fetch_task", "request_id": 2**63, "worker_local_id": 0},
        {"type": "fetch_tasks", "request_id": 1, "max_tasks": 0},
        {"type": "fetch_tasks", "request_id": 1, "max_tasks": 257},
        {"type": "report_task", "request_id": 1, "task_id": 1, "op": {}},
        {"type": "report_task", "request_id": 1, "task_id": 1,
         "op": {"Finish": {"exit_code": 0}, "Cancel": {"reason": ""}}},
        {"type": "report_task", "request_id": 1, "task_id": 1,
         "op": {"Upload": {"content_length": 1}}},
        {"type": "report_tasks", "request_id": 1, "reports": []},
        {"type": "resolve_resources", "request_id": 1, "resources": []},
        {"type": "resolve_resources", "request_id": 1,
         "resources": [{"Attachment": {"key": "k"}}], "task_id": 1, "assignment_id": 1},
        {"type": "heartbeat", "manager_uuid": str(U), "state": "Idle",
         "metrics": {"families": {"cpu": {"deep": {"deeper": 1}}}}},
        {"type": "hello", "request_id": 1, "process_id": str(U), "inventory": [0] * 4097},
    ],
)  # fmt: skip
def test_what_breaks_a_rule_is_malformed(body: dict[str, Any]):
    with pytest.raises(DecodeFailed) as failed:
        FROM_MANAGER.decode(json.dumps(body))
    assert failed.value.code is ErrorCode.PROTOCOL_MALFORMED


def test_an_unknown_type_is_called_so():
    with pytest.raises(DecodeFailed) as failed:
        FROM_MANAGER.decode(b'{"type": "take_over_the_world"}')
    assert failed.value.code is ErrorCode.PROTOCOL_UNKNOWN_TYPE


def test_size_is_checked_before_anything_else():
    with pytest.raises(DecodeFailed) as failed:
        FROM_MANAGER.decode(b"\xff" * (MAX_FRAME_BYTES + 1))
    assert failed.value.code is ErrorCode.PROTOCOL_TOO_LARGE
