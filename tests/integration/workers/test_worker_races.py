"""Requests of workers at the same time, against each other and against the reaper."""

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from accounts.actors import SYSTEM
from accounts.models import User
from mitosis_protocol.enums import Outcome, ShutdownOp
from runners.models import Runner, RunnerLease
from tasks.models import ActiveTask, ArchivedTask, TaskAttempt
from tasks.services.reclaim import reap_expired
from tests.integration.workers.inprocess import Site, WorkerSide
from tests.integration.workers.people import new_task, new_worker
from workers.api.leaving import take_back
from workers.services.departure import shut_down

ROUNDS = 15


def reports(worker: WorkerSide, attempt_id: int, op: Any) -> tuple[str, str, dict[str, Any]]:
    headers = {**worker.headers, "Content-Type": "application/json"}
    content = json.dumps({"id": attempt_id, "op": op})
    return "POST", "/workers/tasks", {"headers": headers, "content": content}


def commit_op(status: int = 0) -> dict[str, Any]:
    return {"Commit": {"exit_status": status, "msg": None}}


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Each on a thread with a database connection of its own, let go at the same moment."""
    barrier = threading.Barrier(len(calls))
    answers: list[Any] = [None] * len(calls)

    def run(place: int, call: Callable[[], Any]) -> None:
        barrier.wait(timeout=10)
        try:
            answers[place] = call()
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=item) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    return answers


def reap() -> int:
    swept = reap_expired(
        grace_s=0, patience_s=0, mass_expiry_ratio=1, max_tasks=settings.MITOSIS.sweep_batch
    )
    return swept.count


def end(runner: Runner, op: ShutdownOp) -> None:
    shut_down(actor=SYSTEM, runner=runner, op=op, take_back=take_back("a test"))


def test_fetches_of_one_worker_at_once_all_get_the_same_attempt(
    site: Site, owner: User, worker: WorkerSide
):
    for _ in range(3):
        new_task(owner)
    for _ in range(ROUNDS):
        call = ("GET", "/workers/tasks", {"headers": worker.headers})
        answers = [answer.json() for answer in site.gather([call] * 8)]
        offers = [answer for answer in answers if answer is not None]
        assert offers, "somebody has to get it"
        assert len({offer["id"] for offer in offers}) == 1
    assert TaskAttempt.objects.count() == 1


def test_fetches_of_many_workers_at_once_share_no_task(site: Site, owner: User):
    workers = [site.worker(new_worker(owner).token) for _ in range(10)]
    for _ in range(6):
        new_task(owner)
    calls = [("GET", "/workers/tasks", {"headers": worker.headers}) for worker in workers]
    offers = [answer.json() for answer in site.gather(calls)]
    given = [offer["uuid"] for offer in offers if offer is not None]
    assert len(given) == len(set(given)) == 6


def test_commits_of_one_attempt_at_once_make_one_outcome(
    site: Site, owner: User, worker: WorkerSide
):
    for _ in range(ROUNDS):
        new_task(owner)
        attempt_id = worker.fetch()["id"]
        ops = [commit_op(status) for status in (0, 256, 0, 256)]
        answers = site.gather([reports(worker, attempt_id, op) for op in ops])
        assert {answer.status_code for answer in answers} == {200}
    assert ArchivedTask.objects.count() == ROUNDS
    assert not ActiveTask.objects.exists()


def test_a_commit_races_the_reaper_and_the_task_ends_once(
    site: Site, owner: User, worker: WorkerSide
):
    for _ in range(ROUNDS):
        new_task(owner)
        attempt_id = worker.fetch()["id"]
        RunnerLease.objects.update(expires_at=Now() - timedelta(seconds=1))
        committed, _ = together(lambda a=attempt_id: worker.commit(a).status_code, reap)
        # Lost or not, nobody claimed it again: the result is welcome either way.
        assert committed == 200
        worker.beat()
    assert ArchivedTask.objects.filter(outcome=Outcome.SUCCEEDED).count() == ROUNDS
    assert not ActiveTask.objects.exists()


def test_a_commit_races_a_reclaim_and_exactly_one_result_counts(
    site: Site, owner: User, worker: WorkerSide
):
    for _ in range(ROUNDS):
        new_task(owner)
        late = worker.fetch()["id"]
        RunnerLease.objects.update(expires_at=Now() - timedelta(seconds=1))
        reap()
        other = site.worker(new_worker(owner).token)
        call = ("GET", "/workers/tasks", {"headers": other.headers})
        committed, fetched = site.gather([reports(worker, late, commit_op()), call])
        if committed.status_code == 200:
            assert fetched.json() is None
        else:
            assert committed.status_code == 404
            assert other.commit(fetched.json()["id"]).status_code == 200
        other.call("DELETE", "/workers")
        worker.beat()
    assert ArchivedTask.objects.count() == ROUNDS
    assert not ActiveTask.objects.exists()


@pytest.mark.parametrize("op", ShutdownOp)
def test_a_fetch_races_a_shutdown_and_no_task_is_stranded(site: Site, owner: User, op: ShutdownOp):
    for _ in range(ROUNDS):
        ref = new_task(owner)
        registered = new_worker(owner)
        worker = site.worker(registered.token)
        fetched, _ = together(
            lambda w=worker: w.call("GET", "/workers/tasks"),
            lambda r=registered.runner: end(r, op),
        )
        gone = Runner.objects.get(pk=registered.runner.pk).revoked_at is not None
        task = ActiveTask.objects.get(uuid=ref.uuid)
        if op is ShutdownOp.FORCE:
            assert gone
            assert task.runner_id is None
        elif task.runner_id is not None:
            # It won the task before it was asked to leave: it may finish it.
            assert not gone
            assert worker.commit(fetched.json()["id"]).status_code == 200
            assert Runner.objects.get(pk=registered.runner.pk).revoked_at is not None
            continue
        assert gone
        ActiveTask.objects.filter(pk=task.pk).delete()


def test_a_commit_races_a_forced_shutdown(site: Site, owner: User):
    for _ in range(ROUNDS):
        ref = new_task(owner)
        registered = new_worker(owner)
        worker = site.worker(registered.token)
        attempt_id = worker.fetch()["id"]
        committed, _ = together(
            lambda w=worker, a=attempt_id: w.commit(a).status_code,
            lambda r=registered.runner: end(r, ShutdownOp.FORCE),
        )
        is_archived = ArchivedTask.objects.filter(uuid=ref.uuid).exists()
        if committed == 200:
            assert is_archived
        else:
            assert committed in (401, 404)
            assert not is_archived
            assert ActiveTask.objects.get(uuid=ref.uuid).runner_id is None
            ActiveTask.objects.all().delete()
