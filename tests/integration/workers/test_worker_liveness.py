"""Leases of workers: beats, the reaper, late results and overruns."""

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now

from accounts.models import User
from core import clock
from mitosis_protocol.enums import ConnState, Outcome, TaskPhase
from runners.models import Runner
from tasks.models import ActiveTask, ArchivedTask, TaskAttempt
from tasks.services.cancel import cancel_tasks
from tests.integration.workers.inprocess import Site, WorkerSide
from tests.integration.workers.people import new_task, new_worker
from tests.integration.workers.time_passes import expire_leases, reap, seconds_left
from workers import periodic
from workers.models import Worker, WorkerStatus

OURS = {"Mitosis-Worker": "1"}


def test_a_beat_of_an_existing_worker_lasts_ten_minutes_and_says_null(worker: WorkerSide):
    expire_leases()
    answer = worker.beat()
    assert (answer.status_code, answer.content) == (200, b"null")
    assert answer.headers["content-type"] == "application/json"
    assert 590 < seconds_left() <= 600


def test_a_beat_of_ours_lasts_one_lease_and_says_what_to_stop(site: Site, owner: User):
    worker = site.worker(new_worker(owner).token, **OURS)
    assert worker.beat().json() == {"cancel": [], "revoked": []}
    assert 110 < seconds_left() <= 120
    assert Worker.objects.get().lease_ttl_s == 120


def test_a_name_alone_is_no_announcement(site: Site, owner: User):
    worker = site.worker(new_worker(owner).token, **{"User-Agent": "mitosis-worker"})
    assert worker.beat().content == b"null"


def test_the_last_heartbeat_is_told_from_the_lease(owner: User, worker: WorkerSide):
    expire_leases(3600)
    worker.beat()
    status = WorkerStatus.objects.get()
    assert abs((status.last_seen_at - clock.now()).total_seconds()) < 5
    assert (status.status, status.active_tasks, status.minutes_since_heartbeat) == ("active", 0, 0)


def test_a_silent_worker_is_stale_and_its_task_is_handed_to_another(
    site: Site, owner: User, worker: WorkerSide
):
    ref = new_task(owner)
    first = worker.fetch()
    expire_leases()
    assert WorkerStatus.objects.get().status == "stale"
    assert reap() == 1
    assert Runner.objects.get().conn_state is ConnState.LOST
    other = site.worker(new_worker(owner).token)
    second = other.fetch()
    assert (second["uuid"], second["attempt"]) == (str(ref.uuid), 2)
    assert second["id"] != first["id"]
    assert worker.commit(first["id"]).status_code == 404
    assert other.commit(second["id"]).status_code == 200
    assert ArchivedTask.objects.get().attempt == 2


def test_a_late_result_is_taken_if_nobody_claimed_the_task_again(owner: User, worker: WorkerSide):
    new_task(owner)
    offer = worker.fetch()
    expire_leases()
    reap()
    assert ActiveTask.objects.get().state is TaskPhase.READY
    assert worker.report(offer["id"], "Finish").status_code == 200
    op = {"Upload": {"content_type": "result", "content_length": 1}}
    assert worker.report(offer["id"], op).status_code == 200
    assert worker.commit(offer["id"]).status_code == 200
    archived = ArchivedTask.objects.get()
    assert (archived.outcome, archived.attempt, archived.failures) == (Outcome.SUCCEEDED, 1, 0)


def test_the_first_beat_after_a_silence_brings_worker_and_task_back(
    owner: User, worker: WorkerSide
):
    """It cannot say what it runs, but it lives, so it runs what it had."""
    new_task(owner)
    offer = worker.fetch()
    expire_leases()
    reap()
    assert ActiveTask.objects.get().failures == 1
    assert worker.beat().content == b"null"
    assert Runner.objects.get().conn_state is ConnState.CONNECTED
    task = ActiveTask.objects.get()
    assert (task.attempt_id, task.failures) == (offer["id"], 0)
    assert task.runner_id == Runner.objects.get().pk
    assert worker.fetch()["id"] == offer["id"]


def test_a_beat_after_a_silence_takes_nothing_from_a_new_holder(
    site: Site, owner: User, worker: WorkerSide
):
    new_task(owner)
    offer = worker.fetch()
    expire_leases()
    reap()
    other = site.worker(new_worker(owner).token)
    taken = other.fetch()
    worker.beat()
    assert worker.commit(offer["id"]).status_code == 404
    assert other.commit(taken["id"]).status_code == 200


def test_a_worker_thought_dead_can_still_read_its_resources(owner: User, worker: WorkerSide):
    """A 404 here would end the task as if its resource did not exist."""
    ref = new_task(owner)
    worker.fetch()
    expire_leases()
    reap()
    assert worker.call("GET", f"/workers/tasks/{ref.uuid}").status_code == 200


def test_a_fetch_after_a_long_outage_needs_no_beat_before(owner: User, worker: WorkerSide):
    new_task(owner)
    expire_leases(7200)
    assert worker.fetch() is not None
    assert seconds_left() > 500


def test_our_worker_gets_a_lost_task_back_and_is_told_what_is_gone(site: Site, owner: User):
    worker = site.worker(new_worker(owner).token, **OURS)
    new_task(owner)
    held = worker.fetch()["id"]
    expire_leases()
    reap()
    assert worker.beat({"held": [held]}).json() == {"cancel": [], "revoked": []}
    task = ActiveTask.objects.get()
    assert (task.attempt_id, task.runner_id) == (held, Runner.objects.get().pk)
    expire_leases()
    reap()
    other = site.worker(new_worker(owner).token)
    other.fetch()
    assert worker.beat({"held": [held]}).json() == {"cancel": [], "revoked": [held]}


def test_our_worker_learns_of_a_cancellation_with_and_without_inventory(site: Site, owner: User):
    worker = site.worker(new_worker(owner).token, **OURS)
    ref = new_task(owner)
    held = worker.fetch()["id"]
    cancel_tasks([ref.id], stop_running=True, batch=10)
    assert worker.beat().json() == {"cancel": [held], "revoked": []}
    assert worker.beat({"held": [held]}).json() == {"cancel": [held], "revoked": []}
    worker.report(held, "Cancel")
    worker.commit(held, 0, "UserCancellation")
    assert ArchivedTask.objects.get().outcome is Outcome.CANCELLED


def test_a_beat_without_inventory_gives_nothing_back(site: Site, owner: User):
    worker = site.worker(new_worker(owner).token, **OURS)
    new_task(owner)
    held = worker.fetch()["id"]
    TaskAttempt.objects.update(claimed_at=Now() - timedelta(minutes=5))
    worker.beat()
    assert ActiveTask.objects.get().attempt_id == held


def test_what_our_worker_does_not_have_goes_back_to_the_queue(site: Site, owner: User):
    worker = site.worker(new_worker(owner).token, **OURS)
    new_task(owner)
    worker.fetch()
    worker.beat({"held": []})
    assert ActiveTask.objects.get().state is TaskPhase.LEASED, "its answer may be on the way"
    TaskAttempt.objects.update(claimed_at=Now() - timedelta(minutes=5))
    worker.beat({"held": []})
    assert ActiveTask.objects.get().state is TaskPhase.READY


@pytest.mark.parametrize(
    ("late_s", "state", "is_removed"), [(61, 2, True), (61, 4, False), (59, 2, False)]
)
def test_an_existing_worker_that_overruns_a_timeout_is_removed(
    owner: User, worker: WorkerSide, late_s: int, state: int, is_removed: bool
):
    new_task(owner, timeout_s=100)
    offer = worker.fetch()
    if state == 4:
        worker.report(offer["id"], "Finish")
    ActiveTask.objects.update(updated_at=Now() - timedelta(seconds=100 + late_s))
    assert worker.beat().content == b"null", "this beat is answered as any other"
    assert worker.beat().status_code == (401 if is_removed else 200)
    task = ActiveTask.objects.get()
    assert (task.state is TaskPhase.READY, task.failures) == (is_removed, int(is_removed))


def test_a_beat_with_metadata_keeps_it_and_lasts_five_minutes(owner: User, worker: WorkerSide):
    metadata = {"hostname": "server-01", "pid": 12345, "tasks_processed": 42}
    body = {"worker_id": str(Runner.objects.get().uuid), "metadata": metadata}
    answer = worker.call("POST", "/api/workers/heartbeat", body)
    assert answer.json() == {
        "success": True,
        "message": "Heartbeat recorded",
        "next_heartbeat_in": 30,
    }
    row = Worker.objects.get()
    assert (row.metadata, row.lease_ttl_s) == (metadata, 300)
    assert row.metadata_at is not None
    worker.beat()
    assert Worker.objects.get().metadata == metadata


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"worker_id": "3f2d3c0e-6a64-4f40-9d0e-1f6e5b0a1c2d", "metadata": {}}, 403),
        ({"metadata": {}}, 422),
        ({"worker_id": "U", "metadata": []}, 422),
        ({"worker_id": "U", "metadata": {"x": "y" * 20_000}}, 413),
    ],
)
def test_a_wrong_beat_with_metadata_renews_nothing(worker: WorkerSide, body: Any, status: int):
    if body.get("worker_id") == "U":
        body = {**body, "worker_id": str(Runner.objects.get().uuid)}
    expire_leases()
    assert worker.call("POST", "/api/workers/heartbeat", body).status_code == status
    assert seconds_left() < 0


def test_a_long_silent_worker_is_retired_unless_its_result_is_awaited(
    site: Site, owner: User, worker: WorkerSide
):
    new_task(owner)
    worker.fetch()
    expire_leases(settings.MITOSIS.worker_inactive_s + 10)
    periodic.retire_silent_workers()
    assert Runner.objects.get().revoked_at is None, "it still holds a task"
    reap()
    periodic.retire_silent_workers()
    assert Runner.objects.get().revoked_at is None, "its late result is welcome"
    other = new_worker(owner)
    site.worker(other.token).fetch()
    periodic.retire_silent_workers()
    gone = Runner.objects.exclude(pk=other.runner.pk).get()
    assert gone.revoked_at is not None
    assert WorkerStatus.objects.get(runner_id=gone.pk).status == "inactive"
    assert worker.beat().status_code == 401


def test_a_task_in_the_hands_of_a_removed_worker_is_swept_back(owner: User, worker: WorkerSide):
    """As if the process that removed it had died before taking the task back."""
    new_task(owner)
    worker.fetch()
    Runner.objects.update(revoked_at=Now(), token_generation=F("token_generation") + 1)
    periodic.end_departures()
    task = ActiveTask.objects.get()
    assert (task.state, task.failures, task.lost_runner_id) == (TaskPhase.READY, 0, None)


def test_an_interrupted_graceful_shutdown_is_swept_up(worker: WorkerSide):
    Runner.objects.update(desired_state=3)
    periodic.end_departures()
    assert Runner.objects.get().revoked_at is not None
