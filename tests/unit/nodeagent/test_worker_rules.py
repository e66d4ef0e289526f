"""Pure rules of the worker: backoff, environment, watch, wire forms, redaction."""

import json
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest

from mitosis_protocol.enums import (
    ArtifactContentType,
    TaskExecState,
    TaskResultMessage,
    TaskState,
)
from mitosis_protocol.specs import TaskSpec
from nodeagent.errors import CoordinatorUnavailable, OfferUnreadable, ResourceMissing
from nodeagent.log_setup import hide_secrets
from nodeagent.worker.comm import (
    Cancel,
    Commit,
    Finish,
    RemoteLocation,
    Report,
    Submit,
    TaskOffer,
    TaskRef,
    TaskSnapshot,
    Upload,
)
from nodeagent.worker.environment import own_env, shared_env
from nodeagent.worker.http_wire import OfferedTask, ReadTask, encode_report
from nodeagent.worker.retry import Backoff, jittered, persist
from nodeagent.worker.watch import WatchHopeless, reached, wait_for_state
from nodeagent.worker.workspace import Workspace

TASK = TaskRef(attempt_id=7, uuid=uuid4())


def test_delays_are_spread_evenly_below_a_growing_ceiling() -> None:
    backoff = Backoff(base_s=1.0, cap_s=8.0, floor_s=0.01)
    for failures, ceiling in ((1, 1.0), (2, 2.0), (4, 8.0), (50, 8.0), (10**6, 8.0)):
        delays = [backoff.delay_s(failures) for _ in range(300)]
        assert all(0.01 <= delay <= ceiling for delay in delays)
        assert max(delays) > ceiling * 0.8
        assert min(delays) < ceiling * 0.2


def test_the_wish_of_the_coordinator_is_added_but_not_without_limit() -> None:
    backoff = Backoff(base_s=1.0)
    assert 5 <= backoff.delay_s(1, CoordinatorUnavailable("x", retry_after_s=5)) <= 6
    assert backoff.delay_s(1, CoordinatorUnavailable("x", retry_after_s=10**6)) == 60


def test_jitter_stays_within_its_spread() -> None:
    assert all(4 <= jittered(5.0) <= 6 for _ in range(100))


async def test_persist_repeats_transient_trouble_only() -> None:
    calls = iter([CoordinatorUnavailable("a"), CoordinatorUnavailable("b"), None, KeyError()])

    async def operation() -> str:
        trouble = next(calls)
        if trouble is not None:
            raise trouble
        return "done"

    quick = Backoff(base_s=0.0, floor_s=0.0)
    assert await persist(operation, what="test", backoff=quick) == "done"
    with pytest.raises(KeyError):
        await persist(operation, what="test", backoff=quick)


def offer(**changes: object) -> TaskOffer:
    spec = TaskSpec(args=["true"], envs={"A": "task", "MITO_TASK_UUID": "forged"})
    values = {"attempt_id": 1, "uuid": uuid4(), "timeout_s": 1.0, "spec": spec, **changes}
    return TaskOffer(**values)  # type: ignore[arg-type]


def test_our_names_win_over_the_tasks_and_the_tasks_over_the_hosts() -> None:
    space = Workspace(Path("/w"), -1)
    given = offer(upstream_task_uuid=UUID(int=3), attempt=2)
    env = {**shared_env({"A": "host", "B": "host", "MITO_PASSWORD": "x"}, space), **own_env(given)}
    assert env == {
        "A": "task",
        "B": "host",
        "MITO_RESULT_DIR": "/w/result",
        "MITO_EXEC_DIR": "/w/exec",
        "MITO_RESOURCE_DIR": "/w/resource",
        "MITO_TASK_UUID": str(given.uuid),
        "MITO_NEW_TASK": "/w/new_task.json",
        "MITO_UPSTREAM_TASK_UUID": str(UUID(int=3)),
        "MITOSIS_TASK_ATTEMPT": "2",
    }
    plain = {**shared_env({}, space), **own_env(offer())}
    assert not {"MITO_UPSTREAM_TASK_UUID", "MITOSIS_TASK_ATTEMPT"} & set(plain)


@pytest.mark.parametrize(
    ("report", "wire"),
    [
        (Finish(), "Finish"),
        (Cancel(), "Cancel"),
        (
            Upload(ArtifactContentType.EXEC_LOG, 12),
            {"Upload": {"content_type": "exec-log", "content_length": 12}},
        ),
        (Submit(msgspec.Raw(b'{"a": 1}')), {"Submit": {"a": 1}}),
        (
            Commit(256, TaskResultMessage.EXEC_TIMEOUT),
            {"Commit": {"exit_status": 256, "msg": "ExecTimeout"}},
        ),
        (Commit(0), {"Commit": {"exit_status": 0, "msg": None}}),
    ],
)
def test_reports_have_the_form_of_the_existing_api(report: Report, wire: object) -> None:
    assert json.loads(encode_report(TASK, report)) == {"id": 7, "op": wire}


def body(**changes: object) -> bytes:
    task = {
        "id": 5,
        "uuid": str(UUID(int=9)),
        "timeout": "1m 30s",
        "upstream_task_uuid": None,
        "spec": {"args": ["true"], "unknown": 1},
        "new field": 1,
        **changes,
    }
    return json.dumps(task).encode()


def read(data: bytes) -> TaskOffer:
    return msgspec.json.decode(data, type=OfferedTask).to_offer(data)


def test_an_offer_of_an_existing_coordinator_is_read() -> None:
    task = read(body())
    assert (task.attempt_id, task.uuid, task.timeout_s) == (5, UUID(int=9), 90)
    assert (task.attempt, task.live_logs) == (None, False)


def test_the_extensions_of_an_offer_are_read() -> None:
    task = read(body(attempt=3, live_logs=True, timeout="1500ms"))
    assert (task.attempt, task.live_logs, task.timeout_s) == (3, True, 1.5)


@pytest.mark.parametrize(
    ("changes", "is_resource_trouble"),
    [
        ({"timeout": 5}, False),
        ({"timeout": "5"}, False),
        ({"spec": {"args": "x"}}, False),
        ({"spec": {"args": ["a\0"]}}, False),
        ({"spec": {"args": [], "watch": [str(UUID(int=1)), "Nowhere"]}}, False),
        ({"spec": {"args": [], "resources": [{"remote_file": {}, "local_path": "a"}]}}, True),
    ],
)
def test_an_unreadable_offer_names_its_attempt(
    changes: dict[str, object], is_resource_trouble: bool
) -> None:
    with pytest.raises(OfferUnreadable) as caught:
        read(body(**changes))
    assert (caught.value.attempt_id, caught.value.uuid) == (5, UUID(int=9))
    assert caught.value.is_resource_trouble is is_resource_trouble


def test_an_unknown_result_message_still_counts_as_committed() -> None:
    data = json.dumps({"info": {"state": "Finished", "result": {"exit_status": 0, "msg": "New"}}})
    task = msgspec.json.decode(data, type=ReadTask).to_snapshot()
    assert (task.is_committed, task.msg) == (True, None)


def snapshot(
    state: TaskState, *, committed: bool = False, msg: TaskResultMessage | None = None
) -> TaskSnapshot:
    return TaskSnapshot(state, msg, committed, None)


@pytest.mark.parametrize(
    ("task", "wanted", "is_there"),
    [
        (snapshot(TaskState.READY), TaskExecState.FETCH_RESOURCE, False),
        (snapshot(TaskState.RUNNING), TaskExecState.FETCH_RESOURCE, True),
        (snapshot(TaskState.RUNNING), TaskExecState.EXEC_SPAWNED, False),
        (snapshot(TaskState.FINISHED), TaskExecState.EXEC_FINISHED, True),
        (snapshot(TaskState.FINISHED), TaskExecState.TASK_COMMITTED, False),
        (snapshot(TaskState.FINISHED, committed=True), TaskExecState.TASK_COMMITTED, True),
        (snapshot(TaskState.FINISHED, committed=True), TaskExecState.UPLOAD_RESULT_FINISHED, True),
        (snapshot(TaskState.FINISHED, committed=True), TaskExecState.EXEC_TIMEOUT, False),
        (snapshot(TaskState.CANCELLED), TaskExecState.EXEC_TIMEOUT, False),
        (
            snapshot(TaskState.CANCELLED, committed=True, msg=TaskResultMessage.EXEC_TIMEOUT),
            TaskExecState.EXEC_TIMEOUT,
            True,
        ),
        (
            snapshot(TaskState.CANCELLED, committed=True, msg=TaskResultMessage.USER_CANCELLATION),
            TaskExecState.EXEC_SPAWNED,
            False,
        ),
    ],
)
def test_what_a_task_has_reached(task: TaskSnapshot, wanted: TaskExecState, is_there: bool) -> None:
    assert (wanted in reached(task)) is is_there


async def test_watching_gives_up_when_it_can_never_be() -> None:
    async def over(_: UUID) -> TaskSnapshot:
        return snapshot(TaskState.CANCELLED, committed=True)

    async def unknown(_: UUID) -> TaskSnapshot:
        raise ResourceMissing("no")

    for read_task in (over, unknown):
        with pytest.raises(WatchHopeless):
            await wait_for_state(read_task, uuid4(), TaskExecState.EXEC_FINISHED)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer SECRET",
        "http://s3/x?X-Amz-Credential=SECRET&X-Amz-Signature=SECRET&a=b",
        "url='http://s3/x?signature=SECRET'",
    ],
)
def test_secrets_are_taken_out_of_log_lines(text: str) -> None:
    line = hide_secrets(None, "info", {"event": text, "count": 3})
    assert "SECRET" not in line["event"]
    assert line["count"] == 3


def test_signed_addresses_do_not_show() -> None:
    assert "sig" not in repr(RemoteLocation("http://x?sig", 3))
