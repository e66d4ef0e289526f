"""Eight connections at the same suites: submitting, running, closing, cancelling, rerunning.

STORM_SECONDS makes it longer (the figure for a release is 60). Afterwards every counter is what the
tables say, nothing deadlocked, no suite is complete with active tasks and none is left incomplete.
"""

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection, connections, transaction

from accounts.actors import SYSTEM
from accounts.models import User
from core.errors import Conflict, DatabaseUnavailable, InvalidInput
from mitosis_protocol.enums import Outcome, SuiteState
from mitosis_protocol.specs import WorkerSchedule
from suites.models import TaskSuite
from suites.selectors import suite_counts
from suites.services.create import delete_suite
from suites.services.lifecycle import close_suite, reopen_suite
from suites.services.pausing import pause_suite, resume_suite
from suites.services.sweeps import close_idle, complete_drained, stop_failing
from tasks.models import ActiveTask, ArchivedTask
from tasks.services.counts import fold_counts
from tasks.services.report import commit_report, settle_sync
from tasks.services.suite_cancel import cancel_suite, end_leftovers
from tasks.services.suite_claim import SuiteClaim, claim_for_manager_sync
from tasks.services.suite_rerun import rerun_tasks
from tests.integration.suites.campaign import counted, make_suite, make_user, submit
from tests.integration.suites.hosts import Host

pytestmark = pytest.mark.django_db(transaction=True)

STORM_S = float(os.environ.get("STORM_SECONDS", "15"))
BATCH = settings.MITOSIS.sweep_batch
EXPECTED = (Conflict, InvalidInput, DatabaseUnavailable)


class Storm:
    """Threads with a connection each, until the time is up; what one raises fails the test."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []
        self.calls = 0

    def start(self, act: Callable[[random.Random], None]) -> None:
        dice = random.Random(len(self._threads))
        thread = threading.Thread(target=self._run, args=(act, dice))
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        assert not self.errors, self.errors

    def _run(self, act: Callable[[random.Random], None], dice: random.Random) -> None:
        try:
            while time.monotonic() < self._until and not self.errors:
                with contextlib.suppress(*EXPECTED):
                    act(dice)
                self.calls += 1
        except BaseException as error:  # noqa: BLE001 - reported by join
            self.errors.append(error)
        finally:
            connections.close_all()


def deadlocks() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


class Campaigns:
    """The suites of the storm and the engagements that work for them."""

    def __init__(self, user: User) -> None:
        self.user = user
        # Two that are never cancelled, two that may be: both stories have to end well.
        self.suites = [make_suite(user, settle_seconds=0) for _ in range(3)]
        self.suites.append(make_suite(user, settle_seconds=0, max_running=5))
        self.works: list[tuple[Host, int]] = []
        for suite in self.suites:
            submit(suite)
            host = Host(user)
            self.works.append((host, host.engage(suite).pk))

    def submit(self, dice: random.Random) -> None:
        submit(dice.choice(self.suites), dice.randint(1, 3))

    def work(self, dice: random.Random) -> None:
        host, assignment_id = dice.choice(self.works)
        claimed = claim_for_manager_sync(
            SuiteClaim(
                runner_id=host.id,
                assignment_id=assignment_id,
                claim_id=uuid4(),
                want=dice.choice([1, 16, 256]),
            )
        )
        reports = [
            commit_report(
                attempt_id=one.attempt_id,
                runner_id=host.id,
                exit_status=dice.choice([0, 0, 0, 256]),
                msg=None,
            )
            for one in claimed
        ]
        if reports:
            settle_sync(reports)

    def steer(self, dice: random.Random) -> None:
        suite = dice.choice(self.suites)
        verb = dice.choice([close_suite, reopen_suite, pause_suite, resume_suite])
        verb(actor=SYSTEM, suite=suite)
        if dice.random() < 0.3:
            rerun_tasks(
                actor=SYSTEM,
                user=self.user,
                suite=suite,
                outcomes=[Outcome.FAILED],
                max_tasks=20,
            )
        if dice.random() < 0.01:
            stop_running = dice.random() < 0.5
            cancel_suite(
                actor=SYSTEM,
                suite=dice.choice(self.suites[:2]),
                reason="the storm",
                stop_running=stop_running,
                batch=100,
            )

    def sweep(self, dice: random.Random) -> None:
        complete_drained(batch=BATCH)
        close_idle(idle_s=dice.random(), batch=BATCH)
        stop_failing(batch=BATCH)
        fold_counts(max_rows=1000)
        end_leftovers(batch=BATCH, age_s=0)
        assert not _complete_with_tasks()
        time.sleep(0.01)


def _complete_with_tasks() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT s.id FROM task_suites s WHERE s.state = %s"
            " AND EXISTS (SELECT FROM active_tasks t WHERE t.suite_id = s.id)",
            [SuiteState.COMPLETE.code],
        )
        return [row[0] for row in cursor.fetchall()]


def _finish(campaigns: Campaigns) -> None:
    """After the storm: everybody works to the end, and the sweeps have their say."""
    for suite in campaigns.suites:
        if TaskSuite.objects.get(pk=suite.pk).state is not SuiteState.CANCELLED:
            resume_suite(actor=SYSTEM, suite=suite)
    end_leftovers(batch=BATCH, age_s=0)
    # What piled up behind the cap would take as long as the storm did.
    TaskSuite.objects.update(max_running=None)
    dice = random.Random(0)
    until = time.monotonic() + 60
    while ActiveTask.objects.exists():
        assert time.monotonic() < until, "tasks are left over"
        campaigns.work(dice)
        end_leftovers(batch=BATCH, age_s=0)
    complete_drained(batch=BATCH)


@pytest.mark.timeout(max(180, 3 * STORM_S))
def test_eight_connections_submitting_committing_closing_and_cancelling() -> None:
    campaigns = Campaigns(make_user())
    before = deadlocks()
    connection.close()  # the pool has eight connections: all of them are for the storm
    storm = Storm(STORM_S)
    for act in (
        *(campaigns.submit, campaigns.submit, campaigns.submit),
        *(campaigns.work, campaigns.work, campaigns.work),
        *(campaigns.steer, campaigns.sweep),
    ):
        storm.start(act)
    storm.join()

    assert deadlocks() == before
    assert storm.calls > STORM_S * 10, "the storm was a breeze"
    _check_counts(campaigns.suites)
    assert not _complete_with_tasks()
    _finish(campaigns)
    _check_counts(campaigns.suites)
    for suite in campaigns.suites:
        state = TaskSuite.objects.get(pk=suite.pk).state
        assert state in {SuiteState.COMPLETE, SuiteState.CANCELLED}
        assert counted(suite)[1] == 0
    assert ArchivedTask.objects.count() > 100


def _check_counts(suites: list[TaskSuite]) -> None:
    counts = suite_counts([suite.pk for suite in suites])
    for suite in suites:
        found = counts[suite.pk]
        assert (found.total, found.pending) == counted(suite)
        ended = ArchivedTask.objects.filter(suite_id=suite.pk)
        assert found.succeeded == ended.filter(outcome=Outcome.SUCCEEDED).count()
        assert found.failed == ended.filter(outcome=Outcome.FAILED).count()
        assert found.cancelled == ended.filter(outcome=Outcome.CANCELLED).count()


def test_max_running_holds_while_many_managers_claim_at_once() -> None:
    user = make_user()
    suite = make_suite(user, max_running=7, worker_schedule=WorkerSchedule(worker_count=1))
    submit(suite, 400)
    hosts = [Host(user) for _ in range(6)]
    works = [(host, host.engage(suite).pk) for host in hosts]
    connection.close()
    seen: list[int] = []

    def work(dice: random.Random) -> None:
        host, assignment_id = dice.choice(works)
        request = SuiteClaim(
            runner_id=host.id, assignment_id=assignment_id, claim_id=uuid4(), want=5
        )
        claimed = claim_for_manager_sync(request)
        seen.append(ActiveTask.objects.filter(runner_id__isnull=False).count())
        for one in claimed:
            host.commit(one)

    storm = Storm(4)
    for _ in hosts:
        storm.start(work)
    storm.join()
    assert max(seen) <= 7
    assert ArchivedTask.objects.count() > 20


def test_a_delete_that_meets_a_submit_waits_and_is_refused() -> None:
    suite = make_suite(make_user())
    inserted, go_on = threading.Event(), threading.Event()
    answers: list[str] = []

    def slow_submit() -> None:
        try:
            with transaction.atomic():
                submit(suite)
                inserted.set()
                go_on.wait(timeout=10)
        finally:
            connections.close_all()

    def remove() -> None:
        try:
            delete_suite(actor=SYSTEM, suite=suite)
        except Conflict as error:
            answers.append(str(error.code))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=slow_submit), threading.Thread(target=remove)]
    threads[0].start()
    assert inserted.wait(timeout=10)
    threads[1].start()
    threads[1].join(timeout=0.3)
    go_on.set()
    for thread in threads:
        thread.join(timeout=10)
    assert answers == ["suite.not_empty"]
    assert counted(suite) == (1, 1)
