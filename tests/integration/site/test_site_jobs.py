"""Periodic jobs: collected from the apps that have some, dropped when they are late, harmless."""

from datetime import timedelta
from types import ModuleType

import pytest
from django.contrib.sessions.models import Session

from core import clock
from mitosis_site import celery, periodic


def module_with(**schedule: float) -> ModuleType:
    module = ModuleType("some.periodic")
    module.SCHEDULE = schedule
    return module


def test_jobs_of_all_apps_are_scheduled_with_an_expiry():
    table = celery.beat_schedule(iter([module_with(reap=5.0), module_with(close=60.0)]))
    assert table["reap"] == {"task": "reap", "schedule": 5.0, "options": {"expires": 10.0}}
    assert set(table) == {"reap", "close"}


def test_no_periodic_module_at_all_is_an_empty_schedule():
    assert celery.beat_schedule(iter([])) == {}
    assert celery.beat_schedule(iter([ModuleType("without.schedule")])) == {}


def test_every_scheduled_job_exists_as_a_task():
    assert periodic.DELETE_EXPIRED_SESSIONS in celery.app.conf.beat_schedule
    assert set(celery.app.conf.beat_schedule) <= set(celery.app.tasks)


def test_messages_are_json_and_results_are_not_kept():
    conf = celery.app.conf
    assert conf.accept_content == ["json"]
    assert conf.task_serializer == "json"
    assert conf.result_backend is None
    assert conf.task_ignore_result is True


@pytest.mark.django_db
def test_only_expired_sessions_are_deleted():
    now = clock.now()
    Session.objects.create(session_key="old", session_data="", expire_date=now - timedelta(days=1))
    Session.objects.create(session_key="new", session_data="", expire_date=now + timedelta(days=1))
    assert periodic.delete_expired_sessions() == 1
    assert periodic.delete_expired_sessions() == 0
    assert list(Session.objects.values_list("session_key", flat=True)) == ["new"]
