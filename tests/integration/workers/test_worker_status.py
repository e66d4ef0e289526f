"""The life of a worker: active, stale, inactive; who is told, and who may see it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
from django.conf import settings
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from accounts.models import User
from core.locks import lock_number
from mitosis_protocol.enums import ConnState, Role
from runners.models import IngestPresence, Runner
from tasks.enums import EventKind
from tasks.models import TaskEvent
from tests.integration.workers.inprocess import Site, WorkerSide, served_database
from tests.integration.workers.people import (
    Caller,
    caller_of,
    new_group,
    new_task,
    new_user,
    new_worker,
)
from tests.integration.workers.time_passes import expire_leases, reap
from workers import periodic
from workers.services.staleness import mark_stale

ACTIVE = "/api/workers/active"


@contextmanager
def held_elsewhere(key: str) -> Iterator[None]:
    with psycopg.connect(served_database()) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(key)])
        yield


def test_a_silent_worker_is_marked_once_and_its_next_beat_takes_it_back(worker: WorkerSide):
    worker.beat()
    periodic.mark_stale_workers()
    assert Runner.objects.get().conn_state is ConnState.CONNECTED, "its lease runs"
    expire_leases()
    policy = settings.MITOSIS
    marked = mark_stale(grace_s=policy.reaper_grace_s, max_workers=policy.sweep_batch)
    assert marked == [Runner.objects.get().uuid]
    assert Runner.objects.get().conn_state is ConnState.LOST
    assert mark_stale(grace_s=policy.reaper_grace_s, max_workers=policy.sweep_batch) == []
    worker.beat()
    assert Runner.objects.get().conn_state is ConnState.CONNECTED


def test_the_stale_job_keeps_still_while_nobody_could_be_heard(worker: WorkerSide):
    """And while somebody else runs it: the lock is the job's name."""
    worker.beat()
    expire_leases()
    IngestPresence.objects.create(
        id=1, up_since=Now(), seen_at=Now() - timedelta(seconds=settings.MITOSIS.lease_ttl_s)
    )
    periodic.mark_stale_workers()
    assert Runner.objects.get().conn_state is ConnState.CONNECTED
    IngestPresence.objects.update(seen_at=Now())
    with held_elsewhere(periodic.MARK_STALE):
        periodic.mark_stale_workers()
        assert Runner.objects.get().conn_state is ConnState.CONNECTED
    periodic.mark_stale_workers()
    assert Runner.objects.get().conn_state is ConnState.LOST
    IngestPresence.objects.all().delete()


def test_the_event_log_says_that_a_task_was_requeued_and_whose_it_was(
    owner: User, worker: WorkerSide
):
    ref = new_task(owner)
    worker.fetch()
    expire_leases()
    reap()
    event = TaskEvent.objects.filter(task_id=ref.id).order_by("-seq").first()
    assert event is not None
    assert (event.kind, event.runner_id) == (EventKind.REQUEUED, Runner.objects.get().pk)
    assert event.data["reason"] == "the lease of its runner ended"


def test_active_workers_are_listed_with_what_they_said(
    site: Site, owner: User, worker: WorkerSide, django_assert_max_num_queries
):
    uuid = str(Runner.objects.get().uuid)
    worker.call(
        "POST", "/api/workers/heartbeat", {"worker_id": uuid, "metadata": {"hostname": "server-01"}}
    )
    new_task(owner)
    worker.fetch()
    new_worker(owner, lease_ttl_s=0.000001)  # stale from the start
    gone = new_worker(owner).runner
    Runner.objects.filter(pk=gone.pk).update(revoked_at=Now())
    quiet = new_worker(owner)
    caller = caller_of(owner)
    with django_assert_max_num_queries(9):
        answer = caller.call("GET", ACTIVE).json()
    assert (answer["count"], answer["limit"], answer["offset"]) == (2, 100, 0)
    first, second = answer["workers"]
    assert first.pop("last_seen_at").endswith("Z")
    assert first == {
        "worker_id": uuid,
        "status": "active",
        "active_tasks": 1,
        "minutes_since_heartbeat": 0,
        "metadata": {"hostname": "server-01"},
    }
    assert (second["worker_id"], second["metadata"]) == (str(quiet.runner.uuid), {})
    paged = caller.call("GET", f"{ACTIVE}?limit=1&offset=1").json()
    assert [one["worker_id"] for one in paged["workers"]] == [str(quiet.runner.uuid)]


def test_active_workers_are_for_members_of_a_group_that_accepted_them(ada: Caller, bob: Caller):
    assert ada.user is not None
    assert bob.user is not None
    new_group("lab", ada.user, bob=Role.READ)
    ada.register(groups=["lab"])
    bob.register(groups=["lab"])  # nobody accepted it
    for caller in (ada, bob):
        answer = caller.call("GET", f"{ACTIVE}?group_name=lab")
        assert answer.json()["count"] == 1, answer.content
    stranger = caller_of(new_user("eve")).call("GET", f"{ACTIVE}?group_name=lab")
    absent = ada.call("GET", f"{ACTIVE}?group_name=nowhere")
    assert (stranger.status_code, absent.status_code) == (404, 404)
    assert Caller().call("GET", ACTIVE).status_code == 400, "no header at all"
    assert ada.call("GET", f"{ACTIVE}?limit=x").status_code == 400


def test_the_console_shows_the_view_and_changes_nothing(db: None):
    browser = Client()
    browser.force_login(new_user("root", admin=True))
    owner = new_user("ada")
    shown = new_worker(owner).runner
    stale = new_worker(owner, lease_ttl_s=0.000001).runner
    page = reverse("admin:workers_workerstatus_changelist")
    text = browser.get(page, {"status": "active"}).content.decode()
    assert str(shown.uuid) in text
    assert str(stale.uuid) not in text
    one = browser.get(reverse("admin:workers_workerstatus_change", args=[stale.pk]))
    assert one.status_code == 200
    assert "_save" not in one.content.decode()
