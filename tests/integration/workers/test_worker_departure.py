"""Shutdown by users, operators and the worker itself; what happens to the task in hand."""

from typing import Any

import pytest

from accounts.models import AuditEntry, User
from mitosis_protocol.enums import Outcome, Role, ShutdownOp, TaskPhase
from runners.models import Runner
from tasks.models import ActiveTask, ArchivedTask
from tests.integration.workers.inprocess import Site, WorkerSide
from tests.integration.workers.people import Caller, caller_of, new_group, new_task, new_worker
from workers.services.registration import RegisteredWorker


def statuses(worker: WorkerSide) -> tuple[int, int]:
    return (
        worker.call("GET", "/workers/tasks").status_code,
        worker.beat().status_code,
    )


@pytest.fixture
def registered(owner: User) -> RegisteredWorker:
    return new_worker(owner)


@pytest.fixture
def mine(site: Site, registered: RegisteredWorker) -> WorkerSide:
    return site.worker(registered.token)


@pytest.fixture
def user(owner: User) -> Caller:
    return caller_of(owner)


@pytest.mark.parametrize("op", ["", "?op=Graceful", "?op=graceful", "?op=Force", "?op=force"])
def test_an_idle_worker_is_gone_at_once(
    user: Caller, registered: RegisteredWorker, mine: WorkerSide, op: str
):
    path = f"/workers/{registered.runner.uuid}"
    answer = user.call("DELETE", path + op)
    assert (answer.status_code, answer.content) == (200, b"")
    assert statuses(mine) == (401, 401)
    assert user.call("GET", path).status_code == 404
    assert user.call("DELETE", path).status_code == 404


def test_a_busy_worker_finishes_its_task_and_is_gone_with_the_commit(
    user: Caller, owner: User, registered: RegisteredWorker, mine: WorkerSide
):
    new_task(owner)
    new_task(owner)
    offer = mine.fetch()
    path = f"/workers/{registered.runner.uuid}"
    assert user.call("DELETE", path).status_code == 200
    info = user.call("GET", path).json()["info"]
    assert (info["state"], info["assigned_task_id"]) == ("GracefulShutdown", offer["uuid"])
    assert mine.beat().status_code == 200
    assert mine.report(offer["id"], "Finish").status_code == 200
    assert mine.commit(offer["id"]).status_code == 200
    assert user.call("GET", path).status_code == 404
    assert statuses(mine) == (401, 401)
    assert ArchivedTask.objects.get().outcome is Outcome.SUCCEEDED
    assert ActiveTask.objects.get().attempt == 0
    entries = AuditEntry.objects.filter(object=str(registered.runner.uuid))
    actions = list(entries.order_by("pk").values_list("action", flat=True))
    assert actions[-2:] == ["worker.shutdown", "worker.left"]


def test_force_takes_the_task_back_at_once_and_refuses_its_result(
    site: Site, user: Caller, owner: User, registered: RegisteredWorker, mine: WorkerSide
):
    new_task(owner)
    offer = mine.fetch()
    assert user.call("DELETE", f"/workers/{registered.runner.uuid}?op=force").status_code == 200
    task = ActiveTask.objects.get()
    assert (task.state, task.runner_id, task.failures) == (TaskPhase.READY, None, 0)
    assert mine.commit(offer["id"]).status_code == 401
    other = site.worker(new_worker(owner).token)
    assert other.fetch()["uuid"] == offer["uuid"]


def test_a_worker_asked_to_leave_that_asks_for_work_is_gone(
    site: Site, user: Caller, owner: User, registered: RegisteredWorker, mine: WorkerSide
):
    """The answer to its fetch was lost, so it knows nothing of the task the database gave it."""
    new_task(owner)
    offer = mine.fetch()
    user.call("DELETE", f"/workers/{registered.runner.uuid}")
    assert mine.call("GET", "/workers/tasks").status_code == 401
    other = site.worker(new_worker(owner).token)
    assert other.fetch()["uuid"] == offer["uuid"]


def test_a_worker_that_leaves_gives_its_task_back_without_a_charge(
    user: Caller, owner: User, registered: RegisteredWorker, mine: WorkerSide
):
    new_task(owner)
    mine.fetch()
    answer = mine.call("DELETE", "/workers")
    assert (answer.status_code, answer.content) == (200, b"null")
    task = ActiveTask.objects.get()
    assert (task.state, task.failures, task.lost_runner_id) == (TaskPhase.READY, 0, None)
    assert statuses(mine) == (401, 401)
    assert mine.call("DELETE", "/workers").status_code == 401
    assert user.call("GET", f"/workers/{registered.runner.uuid}").status_code == 404


def test_shutdown_by_filter_reaches_only_workers_the_group_is_admin_of(
    site: Site, user: Caller, owner: User
):
    new_group("lab", owner)
    admin = new_worker(owner, groups=["lab:admin"], tags=["gpu"])
    other = new_worker(owner, groups=["lab:admin"], tags=["cpu"])
    writer = new_worker(owner, groups=["lab:write"], tags=["gpu"])
    body = {"group_name": "lab", "tags": ["gpu"], "op": "Force"}
    answer = user.call("POST", "/workers/shutdown", body)
    assert answer.json() == {"shutdown_count": 1, "group_name": "lab"}
    alive = Runner.objects.filter(revoked_at__isnull=True)
    assert set(alive) == {other.runner, writer.runner}
    assert statuses(site.worker(admin.token)) == (401, 401)
    body = {"group_name": "lab", "role": ["Write"], "op": "Force"}
    assert user.call("POST", "/workers/shutdown", body).json()["shutdown_count"] == 0


@pytest.mark.parametrize("role", [None, Role.READ, Role.WRITE])
def test_shutdown_by_filter_needs_an_admin_of_the_group(
    eve: Caller, user: Caller, owner: User, role: Role | None
):
    new_group("lab", owner, **({} if role is None else {"eve": role}))
    new_worker(owner, groups=["lab:admin"])
    body = {"group_name": "lab", "op": "Force"}
    assert eve.call("POST", "/workers/shutdown", body).status_code == 403
    assert Runner.objects.filter(revoked_at__isnull=True).count() == 1


@pytest.mark.parametrize("body", [{}, {"op": "Kill"}, {"op": None}])
def test_shutdown_by_filter_needs_an_op(user: Caller, body: Any):
    assert user.call("POST", "/workers/shutdown", body).status_code == 422


def test_an_empty_filter_member_shuts_nothing_down(user: Caller, owner: User):
    new_worker(owner)
    assert user.call("POST", "/workers/shutdown", {"tags": [], "op": "Force"}).status_code == 400
    assert Runner.objects.filter(revoked_at__isnull=True).count() == 1


def test_shutdown_by_list_names_what_failed(user: Caller, eve: Caller, owner: User):
    mine, hers = new_worker(owner).runner, new_worker(eve.user).runner
    absent = "3f2d3c0e-6a64-4f40-9d0e-1f6e5b0a1c2d"
    body = {"uuids": [str(mine.uuid), str(hers.uuid), absent, str(mine.uuid)], "op": "Graceful"}
    answer = user.call("POST", "/workers/shutdown/list", body).json()
    assert answer == {"shutdown_count": 1, "failed_uuids": [str(hers.uuid), absent]}
    assert Runner.objects.get(revoked_at__isnull=True) == hers


def test_an_empty_list_is_refused(user: Caller):
    body = {"uuids": [], "op": "Graceful"}
    assert user.call("POST", "/workers/shutdown/list", body).status_code == 400


@pytest.mark.parametrize("op", ShutdownOp)
def test_admins_shut_any_worker_down(
    root: Caller, eve: Caller, owner: User, registered: RegisteredWorker, op: ShutdownOp
):
    path = f"/admin/workers/{registered.runner.uuid}?op={op.value}"
    assert eve.call("DELETE", path).status_code == 403
    assert root.call("DELETE", path).status_code == 200
    assert root.call("DELETE", path).status_code == 404


def test_an_unknown_op_is_refused(user: Caller, registered: RegisteredWorker):
    assert user.call("DELETE", f"/workers/{registered.runner.uuid}?op=kill").status_code == 400
