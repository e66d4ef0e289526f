"""Two tenants with something on every page, and everybody who may look at them."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.test import Client

from accounts.actors import SYSTEM
from accounts.models import Group, User
from accounts.services.users import set_user_state
from core.clock import now
from managers.models import NodeManager
from mitosis_protocol.enums import Role, UserState
from mitosis_protocol.specs import TaskSpec, WorkerSchedule
from mitosis_protocol.suites import SuiteSpec
from runners.models import Runner
from suites.models import TaskSuite
from suites.services.create import create_suite
from tasks.new_task import NewTask
from tasks.services.claim import claim_for_worker_sync
from tasks.services.submit import Target, submit_task
from tests.integration.managers.fleet import registered
from tests.integration.suites.campaign import submit
from tests.integration.workers.people import new_group, new_user, new_worker

# A name that would do harm if any page took it for markup.
MARKUP: Final = "<script>window.hit=1</script><img src=x onerror=window.hit=1>\"'&amp;"
SAMPLE: Final = {
    "active_workers": 4,
    "families": {
        "system": {"cpu_usage_percent": 12.5, "memory_used_bytes": 5, "memory_total_bytes": 10},
        "worker_pool": {"workers_active": 4, "workers_executing": 1, "worker_0": "idle <b>"},
    },
}


@dataclass(frozen=True)
class Things:
    """What the pages of one tenant are about."""

    group: Group
    suite: TaskSuite
    waiting: UUID  # a task of the suite
    failed: UUID  # a task that ended badly
    manager: Runner
    applicant: Runner  # asks to serve the group

    def addresses(self) -> dict[str, str]:
        return {
            "suite_uuid": str(self.suite.uuid),
            "task_uuid": str(self.waiting),
            "manager_uuid": str(self.manager.uuid),
            "group": self.group.name,
        }


class World:
    """`lab` and `lux`; everybody by the name the tests give them."""

    def __init__(self) -> None:
        ann, joe, zed = new_user("ann"), new_user("joe"), new_user("zed")
        bob, ron, eve, max_ = new_user("bob"), new_user("ron"), new_user("eve"), new_user("max")
        root = new_user("root", admin=True)
        members = {"bob": Role.WRITE, "ron": Role.READ, "max": Role.ADMIN, "zed": Role.READ}
        self.lab = make_things(new_group("lab", ann, **members), ann, zed)
        self.lux = make_things(new_group("lux", joe, zed=Role.READ), joe, zed)
        set_user_state(actor=SYSTEM, username="max", state=UserState.LOCKED)
        self.users = {
            "admin": ann, "writer": bob, "reader": ron, "stranger": eve, "staff": root,
            "locked": max_,
        }  # fmt: skip

    def client(self, name: str) -> Client:
        client = Client()
        if name != "anonymous":
            client.force_login(self.users[name], "accounts.backends.ConsoleBackend")
        return client


def make_things(group: Group, owner: User, applicant_owner: User) -> Things:
    suite = create_suite(
        actor=SYSTEM,
        creator=owner,
        group=group,
        spec=SuiteSpec(
            group_name=group.name,
            name=f"{group.name} {MARKUP}",
            description=MARKUP,
            worker_schedule=WorkerSchedule(worker_count=1),
            labels=[f"label-of-{group.name}"],
        ),
        defaults=settings.MITOSIS,
    )
    [waiting] = submit(suite, labels=[f"<i>{group.name}</i>"])
    manager = registered(owner, "<tag>", groups=[f"{group.name}:admin"]).runner
    NodeManager.objects.filter(pk=manager.pk).update(metrics=SAMPLE, sampled_at=now())
    applicant = registered(applicant_owner, groups=[f"{group.name}:write"]).runner
    return Things(group, suite, _uuid(waiting), _failed_task(group, owner), manager, applicant)


def _failed_task(group: Group, owner: User) -> UUID:
    """Ended by its group's worker with exit status 3."""
    worker = new_worker(owner, groups=[f"{group.name}:write"])
    task = submit_task(
        target=Target(group.pk),
        creator_id=owner.pk,
        task=NewTask(spec=TaskSpec(args=["false", MARKUP]), timeout_s=60),
    )
    claimed = claim_for_worker_sync(runner_id=worker.runner.pk)
    assert claimed is not None
    assert claimed.uuid == task.uuid
    archive(task.id, exit_status=3 << 8, reason=f"said {MARKUP}")
    return task.uuid


def archive(task_id: int, *, exit_status: int, reason: str) -> None:
    """As the settling statement leaves a task that failed: out of the queue, into the archive."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH gone AS (DELETE FROM active_tasks WHERE id = %(id)s RETURNING *) "
            "INSERT INTO archived_tasks (id, uuid, group_id, creator_id, number, suite_id, tags, "
            "labels, timeout_s, spec, attempt, attempt_id, failures, started_at, event_seq, state, "
            "outcome, exit_status, reason, runner_id, created_at, updated_at, ended_at) "
            "SELECT id, uuid, group_id, creator_id, number, suite_id, tags, labels, timeout_s, "
            "spec, attempt, attempt_id, failures, started_at, event_seq, 3, 1, %(status)s, "
            "%(reason)s, runner_id, created_at, updated_at, %(at)s FROM gone",
            {"id": task_id, "status": exit_status, "reason": reason,
             "at": now() - timedelta(minutes=3)},
        )  # fmt: skip


def _uuid(task_id: int) -> UUID:
    with connection.cursor() as cursor:
        cursor.execute("SELECT uuid FROM active_tasks WHERE id = %s", [task_id])
        [uuid] = cursor.fetchone()
    return UUID(str(uuid))
