"""`GET /managers/tasks/{uuid}`: a manager reads tasks of the groups whose tasks it holds."""

from uuid import uuid4

import pytest
from django.test import Client

from accounts.models import User
from managers.services.registration import RegisteredManager
from tasks.models import ActiveTask
from tests.integration.managers.fleet import registered
from tests.integration.suites.campaign import make_suite, make_user, submit

pytestmark = pytest.mark.django_db


def read(manager: RegisteredManager, task: ActiveTask) -> int:
    headers = {"Authorization": f"Bearer {manager.tokens.token}"}
    return Client(headers=headers).get(f"/managers/tasks/{task.uuid}").status_code


def two_tasks(user: User) -> tuple[ActiveTask, ActiveTask]:
    first, second = submit(make_suite(user), 2)
    return ActiveTask.objects.get(pk=first), ActiveTask.objects.get(pk=second)


def hold(manager: RegisteredManager, task: ActiveTask) -> None:
    rows = ActiveTask.objects.filter(pk=task.pk)
    rows.update(runner_id=manager.runner.pk, state=2, attempt=1, attempt_id=task.pk)


def test_a_manager_reads_what_its_task_waits_for_and_nothing_else() -> None:
    user, stranger = make_user(f"u{uuid4().hex[:8]}"), make_user(f"s{uuid4().hex[:8]}")
    manager = registered(user)
    held, watched = two_tasks(user)
    foreign, _ = two_tasks(stranger)
    assert read(manager, watched) == 404, "it holds nothing yet"
    hold(manager, held)
    assert read(manager, watched) == 200
    assert read(manager, foreign) == 404


def test_who_is_no_manager_has_no_business_there() -> None:
    task, _ = two_tasks(make_user(f"u{uuid4().hex[:8]}"))
    stranger = Client(headers={"Authorization": "Bearer nobody"})
    assert stranger.get(f"/managers/tasks/{task.uuid}").status_code == 401
