"""The Celery wrappers of the sweeps over tasks."""

from datetime import timedelta

import pytest
from celery import current_app
from django.conf import settings

from core import clock
from tasks import periodic
from tasks.storage import Bucket, get_storage

pytestmark = pytest.mark.django_db(transaction=True)


def test_every_scheduled_job_is_one_that_celery_knows() -> None:
    assert set(periodic.SCHEDULE) <= set(current_app.tasks)
    assert periodic.SCHEDULE["tasks.reap"] == settings.MITOSIS.sweep_s


@pytest.mark.usefixtures("services")
def test_old_live_output_is_removed_and_young_output_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = get_storage()
    storage.put(Bucket.ARTIFACTS, "logs/job-test/1/stdout/0", b"line")
    periodic.discard_uploads()
    assert storage.list_objects(Bucket.ARTIFACTS, "logs/job-test/", after="")
    later = clock.now() + periodic.LIVE_OUTPUT_MEMORY + timedelta(minutes=1)
    with clock.using(lambda: later):
        periodic.discard_uploads()
    assert not storage.list_objects(Bucket.ARTIFACTS, "logs/job-test/", after="")
