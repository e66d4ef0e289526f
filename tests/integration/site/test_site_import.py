"""`manage.py import_mitosis` on a real database with the tables of an existing server."""

import io
import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from accounts.models import AuditEntry, Group, Membership, User
from mitosis_protocol.enums import Outcome, Role, TaskPhase
from runners.models import GroupRunner, Runner
from tasks.models import ActiveTask, ArchivedTask, Artifact, Attachment, TaskDependency
from tests.harness import TestServices
from tests.integration.accounts.api_client import Api
from tests.integration.site.existing_server import (
    CANCELLED,
    FINISHED,
    MORNING,
    PASSWORD,
    PENDING,
    READY,
    RUNNING,
    ExistingServer,
    existing_server,
)
from tests.integration.tasks.api_world import TeamWorker, new_group, new_user, ok, submit
from tests.integration.workers.people import caller_of
from workers.models import WorkerStatus

WORKER = uuid.UUID("6f1d7c35-16ac-4d4f-8ab1-0a4d8c9b6f11")
COUNTED = (
    User,
    Group,
    Membership,
    Runner,
    GroupRunner,
    ActiveTask,
    ArchivedTask,
    Artifact,
    Attachment,
)


@pytest.fixture
def server(services: TestServices, db: None) -> Iterator[ExistingServer]:
    with existing_server() as running:
        yield running


@pytest.fixture
def world(server: ExistingServer) -> SimpleNamespace:
    """Two people, a group of both, a worker, tasks in every state the server knows, two files."""
    ada, bob = server.user("ada", admin=True), server.user("bob")
    lab = server.group("lab", ada, task_count=7)
    server.member(ada, lab, 2)
    server.member(bob, lab, 1)
    server.worker(ada, lab, WORKER)
    done = json.dumps({"exit_status": 0, "msg": None})
    late = json.dumps({"exit_status": 0, "msg": "ExecTimeout"})
    stopped = json.dumps({"exit_status": 0, "msg": "UserCancellation"})
    ended = {"reporter_uuid": WORKER}
    made = SimpleNamespace(
        done=server.task(bob, lab, 1, FINISHED, result=done, **ended),
        failed=server.task(
            bob, lab, 2, FINISHED, result=json.dumps({"exit_status": 256, "msg": None}), **ended
        ),
        late=server.task(bob, lab, 3, CANCELLED, result=late, **ended),
        stopped=server.task(bob, lab, 4, CANCELLED, result=stopped, **ended),
        running=server.task(bob, lab, 5, RUNNING, assigned_worker=1, tags=["gpu"]),
        ready=server.task(bob, lab, 6, READY, priority=5),
    )
    made.pending = server.task(bob, lab, 7, PENDING, upstream_task_uuid=made.running)
    server.artifact(made.done, 120)
    server.attachment(lab, "data/set.csv", 30)
    return made


def run(server: ExistingServer, *flags: str) -> str:
    out = io.StringIO()
    call_command("import_mitosis", "--source", server.url, *flags, stdout=out)
    return out.getvalue()


def counts() -> list[int]:
    return [model._default_manager.count() for model in COUNTED]


def test_people_come_with_their_passwords_groups_and_roles(
    server: ExistingServer, world: SimpleNamespace, clean_redis: object
) -> None:
    run(server)
    token = ok(Api(Client()).login("bob", PASSWORD))["token"]
    bob = Api(Client(), token)
    assert ok(bob.get("/users/groups"))["groups"] == {"bob": "Admin", "lab": "Write"}
    assert User.objects.get(username="ada").is_staff
    assert User.objects.get(username="ada").group_count == 2
    lab = Group.objects.get(name="lab")
    assert (lab.task_count, lab.storage_quota, lab.storage_used) == (7, 5000, 150)
    assert lab.created_at == MORNING
    answer = ok(bob.get(f"/tasks/{world.done}"))
    assert answer["info"]["task_id"] == 1
    assert answer["info"]["reporter_uuid"] == str(WORKER)
    assert [one["size"] for one in answer["artifacts"]] == [120]
    url = ok(bob.get(f"/tasks/{world.done}/download/artifacts/result"))["url"]
    assert f"/{world.done}/result.tar.gz?" in url
    assert ok(bob.get("/groups/lab/download/attachments/data/set.csv"))["size"] == 30


def test_ended_tasks_keep_their_end_and_open_ones_run_here(
    server: ExistingServer, world: SimpleNamespace
) -> None:
    run(server)
    outcomes = {row.uuid: row.outcome for row in ArchivedTask.objects.all()}
    assert outcomes == {
        world.done: Outcome.SUCCEEDED,
        world.failed: Outcome.FAILED,
        world.late: Outcome.TIMEOUT,
        world.stopped: Outcome.CANCELLED,
    }
    phases = {row.uuid: row.state for row in ActiveTask.objects.all()}
    assert phases == {
        world.running: TaskPhase.READY,
        world.ready: TaskPhase.READY,
        world.pending: TaskPhase.PENDING,
    }
    bob = User.objects.get(username="bob")
    lab = Group.objects.get(name="lab")
    Membership.objects.filter(user=bob, group=lab).update(role=Role.ADMIN)
    worker = TeamWorker(bob, groups=["lab"])
    Runner.objects.filter(pk=worker.runner_id).update(tags=["gpu"])
    # The urgent one first, then the one whose worker is gone, then the one that waited for it.
    assert [worker.run(), worker.run(), worker.run()] == [world.ready, world.running, world.pending]


def test_workers_are_known_as_ones_that_left(
    server: ExistingServer, world: SimpleNamespace
) -> None:
    run(server)
    status = WorkerStatus.objects.get(worker_id=WORKER)
    assert status.status == "inactive"
    assert abs(status.last_seen_at - MORNING) < timedelta(seconds=1)
    assert Runner.objects.get(uuid=WORKER).tags == ["gpu"]
    assert GroupRunner.objects.get(runner__uuid=WORKER).role is Role.WRITE


def test_a_dry_run_reports_the_same_and_keeps_nothing(
    server: ExistingServer, world: SimpleNamespace
) -> None:
    before = counts()
    rehearsal = run(server, "--dry-run")
    assert counts() == before
    assert rehearsal.replace("Dry run: nothing was kept.", "Done.") == run(server)


def test_a_repetition_adds_only_what_is_new(server: ExistingServer, world: SimpleNamespace) -> None:
    run(server)
    first = counts()
    run(server)
    assert counts() == first
    assert Group.objects.get(name="lab").storage_used == 150
    assert TaskDependency.objects.count() == 1
    assert ActiveTask.objects.get(uuid=world.running).dependents == 1
    server.task(1, 3, 8, READY)
    run(server)
    assert sum(counts()) == sum(first) + 1
    assert AuditEntry.objects.filter(action="site.import").count() == 3


def test_a_task_that_ended_here_does_not_come_back(
    server: ExistingServer, world: SimpleNamespace
) -> None:
    run(server)
    bob = User.objects.get(username="bob")
    Membership.objects.filter(user=bob).update(role=Role.ADMIN)
    assert TeamWorker(bob, groups=["lab"]).run() == world.ready
    run(server)
    assert not ActiveTask.objects.filter(uuid=world.ready).exists()


def test_numbers_that_a_group_of_the_same_name_gave_out_are_not_given_twice(
    server: ExistingServer, world: SimpleNamespace
) -> None:
    ada = new_user("ada")
    new_group("lab", ada)
    submit(caller_of(ada), group="lab")
    submit(caller_of(ada), group="lab")
    run(server)
    rows = [*ActiveTask.objects.all(), *ArchivedTask.objects.all()]
    numbers = [row.number for row in rows]
    assert len(set(numbers)) == len(numbers) == 9
    assert Group.objects.get(name="lab").task_count == max(numbers)


def test_a_task_nobody_could_run_stops_the_import_until_it_is_left_out(
    server: ExistingServer, world: SimpleNamespace
) -> None:
    bad = server.task(1, 3, 9, READY, spec=json.dumps({"argv": ["true"]}))
    before = counts()
    with pytest.raises(CommandError, match="1 rows cannot be taken over"):
        run(server)
    assert counts() == before
    assert f"active_tasks {bad}: its spec" in run(server, "--skip-unusable")
    assert not ActiveTask.objects.filter(uuid=bad).exists()


def test_what_waited_for_a_refused_task_does_not_wait_for_ever(
    server: ExistingServer, world: SimpleNamespace
) -> None:
    bad = server.task(1, 3, 9, READY, spec=json.dumps({"argv": ["true"]}))
    orphan = server.task(1, 3, 10, PENDING, upstream_task_uuid=bad)
    run(server, "--skip-unusable")
    assert ActiveTask.objects.get(uuid=orphan).state is TaskPhase.READY


def test_a_name_that_is_a_user_here_and_a_group_there_is_refused(
    server: ExistingServer, world: SimpleNamespace
) -> None:
    new_user("lab")
    with pytest.raises(CommandError, match="groups on the other: lab"):
        run(server)


def test_another_database_is_refused_with_all_that_is_missing(server: ExistingServer) -> None:
    server.execute("ALTER TABLE archived_tasks DROP COLUMN reporter_uuid; DROP TABLE attachments")
    with pytest.raises(CommandError) as refused:
        run(server)
    assert "archived_tasks.reporter_uuid" in str(refused.value)
    assert "attachments.key" in str(refused.value)


def test_managed_tasks_are_not_turned_into_independent_ones(
    server: ExistingServer, world: SimpleNamespace
) -> None:
    server.execute("ALTER TABLE active_tasks ADD task_suite_id bigint")
    server.execute("UPDATE active_tasks SET task_suite_id = 1 WHERE state = 1")
    with pytest.raises(CommandError, match="1 active tasks belong to suites"):
        run(server)
