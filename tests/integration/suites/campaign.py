"""A group, suites and tasks made through the services, and the facts to compare counts with."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from accounts.actors import SYSTEM
from accounts.models import Group, User
from accounts.selectors import get_group
from accounts.services.users import create_user
from mitosis_protocol.specs import TaskSpec, WorkerSchedule
from mitosis_protocol.suites import SuiteSpec
from suites.models import TaskSuite
from suites.services.create import create_suite
from suites.services.lifecycle import accept_submits
from tasks import store
from tasks.new_task import NewTask
from tasks.services.submit import Target, submit_tasks
from tasks.statements import array

SCHEDULE = WorkerSchedule(worker_count=4)


def make_user(username: str = "ada", *, admin: bool = False) -> User:
    return create_user(actor=SYSTEM, username=username, md5_password=bytes(16), is_admin=admin)


def own_group(user: User) -> Group:
    """The group every user is Admin of."""
    return get_group(user.username)


def make_suite(user: User, **members: Any) -> TaskSuite:
    members.setdefault("worker_schedule", SCHEDULE)
    spec = SuiteSpec(group_name=user.username, **members)
    return create_suite(
        actor=SYSTEM, creator=user, group=own_group(user), spec=spec, defaults=settings.MITOSIS
    )


def submit(suite: TaskSuite, count: int = 1, **members: Any) -> list[int]:
    """Submit `count` tasks as the API does: the suite first, then its tasks, one transaction."""
    task = NewTask(spec=TaskSpec(args=["true"]), timeout_s=60, **members)
    with transaction.atomic():
        accept_submits([suite.pk])
        refs = submit_tasks(
            target=Target(suite.group_id, suite.pk),
            creator_id=suite.creator_id,
            tasks=[task] * count,
        )
    return [ref.id for ref in refs]


def end_tasks(task_ids: Sequence[int]) -> None:
    """Let waiting tasks end, through the statement that cancels them."""
    store.CANCEL.fetch_sync({"task_ids": array(task_ids), "held": False, "reason": "a test"})


def counted(suite: TaskSuite) -> tuple[int, int]:
    """Reality: how many tasks were ever submitted, and how many are active."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM active_tasks WHERE suite_id = %(id)s)"
            " + (SELECT count(*) FROM archived_tasks WHERE suite_id = %(id)s),"
            " (SELECT count(*) FROM active_tasks WHERE suite_id = %(id)s)",
            {"id": suite.pk},
        )
        total, pending = cursor.fetchone()
    return total, pending


def turn_back(suite: TaskSuite, **seconds: float) -> None:
    """Let time pass for one suite: move the named columns into the past."""
    changes = ", ".join(f"{name} = {name} - make_interval(secs => %({name})s)" for name in seconds)
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE task_suites SET {changes} WHERE id = %(id)s", {**seconds, "id": suite.pk}
        )


def count_failures(suite: TaskSuite, *, failed: int, succeeded: int = 0) -> None:
    """Pretend that tasks ended: the counts a commit would have added."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO suite_count_deltas (suite_id, failed, succeeded) VALUES (%s, %s, %s)",
            [suite.pk, failed, succeeded],
        )
