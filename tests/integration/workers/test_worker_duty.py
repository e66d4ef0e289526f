"""Fetch and report over HTTP: what a worker of the existing API sees."""

from typing import Any

import httpx2
import pytest

from accounts.models import Group, User
from accounts.services.sessions import issue_user_token
from mitosis_protocol.enums import Outcome, RunnerKind, TaskPhase, TaskState
from mitosis_protocol.specs import TaskSpec
from tasks.models import ActiveTask, ArchivedTask, TaskAttempt
from tests.integration.workers.inprocess import Site, WorkerSide
from tests.integration.workers.people import new_task, new_user, new_worker

UNKNOWN_ATTEMPT = 9_000_000_000


def test_an_idle_worker_is_answered_null_and_never_from_a_cache(worker: WorkerSide):
    response = worker.call("GET", "/workers/tasks")
    assert (response.status_code, response.content) == (200, b"null")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"


def test_a_fetched_task_carries_the_attempts_id_and_a_humantime_timeout(
    owner: User, worker: WorkerSide
):
    spec = TaskSpec(args=["echo", "ü"], envs={"A": "1"}, terminal_output=True)
    ref = new_task(owner, spec=spec, timeout_s=5400)
    offer = worker.fetch()
    attempt = TaskAttempt.objects.get()
    assert offer == {
        "id": attempt.pk,
        "uuid": str(ref.uuid),
        "timeout": "1h 30m",
        "upstream_task_uuid": None,
        "spec": {
            "args": ["echo", "ü"],
            "envs": {"A": "1"},
            "resources": [],
            "terminal_output": True,
            "watch": None,
        },
        "attempt": 1,
        "live_logs": True,
    }
    assert ActiveTask.objects.get().state is TaskPhase.LEASED


def test_a_busy_worker_gets_the_same_attempt_again(owner: User, worker: WorkerSide):
    new_task(owner)
    new_task(owner)
    first = worker.fetch()
    assert worker.fetch() == first
    assert TaskAttempt.objects.count() == 1


def test_higher_priority_first_then_the_older_one(owner: User, worker: WorkerSide):
    refs = [new_task(owner, priority=priority) for priority in (0, 5, 5)]
    seen = []
    for _ in refs:
        offer = worker.fetch()
        seen.append(offer["uuid"])
        worker.commit(offer["id"])
    assert seen == [str(refs[1].uuid), str(refs[2].uuid), str(refs[0].uuid)]


def test_tags_decide_and_are_read_at_fetch_time(site: Site, owner: User):
    new_task(owner, tags=["gpu"])
    bare = new_worker(owner)
    worker = site.worker(bare.token)
    assert worker.fetch() is None
    bare.runner.tags = ["big", "gpu"]
    bare.runner.save(update_fields=["tags"])
    assert worker.fetch() is not None


def test_no_task_of_a_group_that_did_not_accept_the_worker(site: Site, owner: User):
    bob = new_user("bob")
    new_task(bob)
    worker = site.worker(new_worker(owner, groups=["bob"]).token)
    assert worker.fetch() is None


def test_finish_and_commit_archive_the_task(owner: User, worker: WorkerSide):
    ref = new_task(owner)
    offer = worker.fetch()
    finished = worker.report(offer["id"], "Finish")
    assert (finished.status_code, finished.json()) == (200, {"url": None})
    assert ActiveTask.objects.get().state is TaskPhase.FINISHING
    committed = worker.commit(offer["id"], 256)
    assert (committed.status_code, committed.json()) == (200, {"url": None})
    archived = ArchivedTask.objects.get(uuid=ref.uuid)
    assert (archived.state, archived.outcome) == (TaskState.FINISHED, Outcome.FAILED)
    assert (archived.exit_status, archived.msg) == (256, None)
    assert not ActiveTask.objects.exists()
    assert worker.fetch() is None


def test_a_timed_out_task_is_cancelled_then_committed(owner: User, worker: WorkerSide):
    new_task(owner)
    offer = worker.fetch()
    assert worker.report(offer["id"], "Cancel").status_code == 200
    assert worker.commit(offer["id"], 15, "ExecTimeout").status_code == 200
    archived = ArchivedTask.objects.get()
    assert (archived.state, archived.outcome) == (TaskState.CANCELLED, Outcome.TIMEOUT)


def test_commit_straight_from_running_is_allowed(owner: User, worker: WorkerSide):
    new_task(owner)
    assert worker.commit(worker.fetch()["id"]).status_code == 200
    assert ArchivedTask.objects.get().outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("op", ["Finish", "Cancel", {"Commit": {"exit_status": 0, "msg": None}}])
def test_a_repeated_report_is_answered_as_the_first(owner: User, worker: WorkerSide, op: Any):
    new_task(owner)
    offer = worker.fetch()
    answers = [worker.report(offer["id"], op) for _ in range(3)]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, {"url": None})] * 3


@pytest.mark.parametrize(
    "op",
    [
        "Finish",
        "Cancel",
        {"Commit": {"exit_status": 0, "msg": None}},
        {"Upload": {"content_type": "result", "content_length": 1}},
    ],
)
def test_a_task_that_is_not_this_workers_is_not_found(site: Site, owner: User, op: Any):
    new_task(owner)
    holder, other = (site.worker(new_worker(owner).token) for _ in range(2))
    attempt_id = holder.fetch()["id"]
    for number in (attempt_id, UNKNOWN_ATTEMPT, -1):
        answer = other.report(number, op)
        assert (answer.status_code, answer.json()["msg"]) == (404, "Task not found")
    assert holder.commit(attempt_id).status_code == 200


def test_finish_after_cancel_breaks_a_precondition(owner: User, worker: WorkerSide):
    new_task(owner)
    offer = worker.fetch()
    worker.report(offer["id"], "Cancel")
    assert worker.report(offer["id"], "Finish").status_code == 400


def test_upload_answers_a_url_that_takes_the_archive(
    owner: User, worker: WorkerSide, services: object
):
    new_task(owner)
    offer = worker.fetch()
    for kind in ("result", "std-log", "execlog"):
        op = {"Upload": {"content_type": kind, "content_length": 3}}
        answer = worker.report(offer["id"], op)
        assert answer.status_code == 200, answer.text
        assert httpx2.put(answer.json()["url"], content=b"abc").status_code == 200
    assert Group.objects.get(name="ada").storage_used == 9


def test_an_upload_beyond_the_quota_is_forbidden_and_the_commit_is_not(
    owner: User, worker: WorkerSide
):
    Group.objects.filter(name="ada").update(storage_quota=10)
    new_task(owner)
    offer = worker.fetch()
    op = {"Upload": {"content_type": "result", "content_length": 11}}
    answer = worker.report(offer["id"], op)
    assert (answer.status_code, answer.json()["msg"]) == (403, "Resource quota exceeded")
    assert worker.commit(offer["id"]).status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"id": "1", "op": "Finish"}, 422),
        ({"id": 1, "op": "Begin"}, 422),
        ({"id": 1, "op": {}}, 422),
        ({"id": 1, "op": {"Commit": {"exit_status": 0}, "Upload": {}}}, 422),
        ({"id": 1, "op": {"Commit": {}}}, 422),
        ({"id": 1, "op": {"Commit": {"exit_status": 2**31}}}, 422),
        ({"id": 1, "op": {"Commit": {"exit_status": 0, "msg": "Sorry"}}}, 422),
        ({"id": 1, "op": {"Upload": {"content_type": "movie", "content_length": 1}}}, 422),
        ({"id": 1, "op": {"Upload": {"content_type": "result", "content_length": -1}}}, 422),
        ({"id": 2**63, "op": "Finish"}, 400),
    ],
)
def test_a_report_of_the_wrong_shape_is_refused(worker: WorkerSide, body: Any, status: int):
    assert worker.call("POST", "/workers/tasks", body).status_code == status


@pytest.mark.parametrize("raw", [b"", b"{", b'{"id": NaN}', b'{"id": 1, "id": 2}', b"\xff"])
def test_broken_json_is_a_bad_request(worker: WorkerSide, raw: bytes):
    headers = {**worker.headers, "Content-Type": "application/json"}
    answer = worker.site.request("POST", "/workers/tasks", content=raw, headers=headers)
    assert answer.status_code == 400


def test_a_body_without_its_type_is_refused(worker: WorkerSide):
    answer = worker.site.request("POST", "/workers/tasks", content=b"{}", headers=worker.headers)
    assert answer.status_code == 415


def test_only_a_workers_own_token_is_accepted(site: Site, owner: User, worker: WorkerSide):
    calls = [
        ("GET", "/workers/tasks"),
        ("POST", "/workers/tasks"),
        ("POST", "/workers/heartbeat"),
        ("POST", "/api/workers/heartbeat"),
        ("DELETE", "/workers"),
        ("GET", "/workers/tasks/3f2d3c0e-6a64-4f40-9d0e-1f6e5b0a1c2d"),
    ]
    user = site.worker(issue_user_token(owner))
    direct = site.worker(new_worker(owner, kind=RunnerKind.DIRECT).token)
    for method, path in calls:
        assert site.request(method, path).status_code == 400
        assert user.call(method, path).status_code == 401
        # Reports and leaving are open to direct workers too, polling is not; and then it has left.
        is_bulk = (method, path) in {calls[1], calls[4]}
        assert (direct.call(method, path).status_code == 401) is not is_bulk


def test_an_unknown_method_is_named(worker: WorkerSide):
    answer = worker.call("PUT", "/workers/tasks")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
