"""Many connections at the same suites: counts stay exact, nothing deadlocks, nothing is lost."""

import random
import threading
import time
from collections.abc import Callable

import pytest
from django.db import DatabaseError, connection, connections

from accounts.actors import SYSTEM
from core.errors import Conflict, InvalidInput
from mitosis_protocol.enums import SuiteState
from suites.models import TaskSuite
from suites.selectors import suite_counts
from suites.services.lifecycle import (
    accept_submits,
    cancel_suite_row,
    close_suite,
    reopen_suite,
)
from suites.services.sweeps import close_idle, complete_drained
from tasks.services.cancel import cancel_suite_tasks
from tasks.services.counts import fold_counts
from tests.integration.suites.campaign import (
    counted,
    end_tasks,
    make_suite,
    make_user,
    submit,
    turn_back,
)

pytestmark = pytest.mark.django_db(transaction=True)

RUN_S = 8.0  # the long version is the chaos run; this one is part of every test run
WRITERS = 8


class Crowd:
    """Threads with a connection each; what one of them raises fails the test."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - reported by join
                self.errors.append(error)
            finally:
                connections.close_all()

        thread = threading.Thread(target=run)
        thread.start()
        self._threads.append(thread)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(timeout=60)
        assert not self.errors, self.errors


def deadlocks() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


@pytest.mark.timeout(180)
def test_eight_connections_leave_exact_counts_and_no_deadlock() -> None:
    ada = make_user()
    suites = [make_suite(ada, settle_seconds=0) for _ in range(4)]
    before = deadlocks()
    connection.close()  # the pool has eight: all of them are for the crowd
    until = time.monotonic() + RUN_S
    crowd = Crowd()
    for number in range(WRITERS):
        crowd.start(lambda seed=number: _act(random.Random(seed), suites, until))
    crowd.join()
    assert deadlocks() == before
    counts = suite_counts([suite.pk for suite in suites])
    for suite in suites:
        reality = counted(suite)
        assert (counts[suite.pk].total, counts[suite.pk].pending) == reality
        state = TaskSuite.objects.get(pk=suite.pk).state
        assert not (state is SuiteState.COMPLETE and reality[1])


def _act(dice: random.Random, suites: list[TaskSuite], until: float) -> None:
    mine: list[int] = []
    while time.monotonic() < until:
        suite = dice.choice(suites)
        move = dice.random()
        try:
            if move < 0.45:
                mine += submit(suite, dice.randint(1, 4))
            elif move < 0.75:
                dice.shuffle(mine)
                end_tasks(mine[:5])
                del mine[:5]
            elif move < 0.85:
                complete_drained(batch=100)
                close_idle(idle_s=0, batch=100)
            elif move < 0.9:
                close_suite(actor=SYSTEM, suite=suite)
            elif move < 0.95:
                reopen_suite(actor=SYSTEM, suite=suite)
            elif move < 0.97:
                cancel_suite_tasks(suite.pk, stop_running=True, batch=50)
            else:
                fold_counts(max_rows=1000)
        except (Conflict, InvalidInput):
            continue


def test_a_submit_that_races_the_completion_wins_or_reopens() -> None:
    """The hole of a check that does not see rows inserted meanwhile: many narrow races."""
    ada = make_user()
    suite = make_suite(ada, settle_seconds=0)
    end_tasks(submit(suite))
    for _ in range(40):
        crowd = Crowd()
        crowd.start(lambda: complete_drained(batch=10) and None)
        crowd.start(lambda: submit(suite) and None)
        crowd.join()
        state, (_, pending) = TaskSuite.objects.get(pk=suite.pk).state, counted(suite)
        assert state is SuiteState.OPEN
        assert pending > 0
        cancel_suite_tasks(suite.pk, stop_running=True, batch=50)


def test_completion_does_not_trust_what_it_saw_before_a_submit_committed() -> None:
    ada = make_user()
    suite = make_suite(ada, settle_seconds=0)
    end_tasks(submit(suite))
    turn_back(suite, last_task_submitted_at=60, opened_at=120)
    holding, release = threading.Event(), threading.Event()
    crowd = Crowd()

    def slow_submit() -> None:
        from django.db import transaction

        with transaction.atomic():
            submit(suite)
            holding.set()
            assert release.wait(timeout=10)

    crowd.start(slow_submit)
    assert holding.wait(timeout=10)
    assert complete_drained(batch=10) == [], "the row is held: left to the next sweep"
    release.set()
    crowd.join()
    assert complete_drained(batch=10) == []
    assert TaskSuite.objects.get(pk=suite.pk).state is SuiteState.OPEN


def test_batches_over_the_same_suites_in_any_order_do_not_deadlock() -> None:
    ada = make_user()
    ids = [make_suite(ada).pk for _ in range(6)]
    before = deadlocks()
    crowd = Crowd()

    def shuffle(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(30):
            accept_submits(dice.sample(ids, 4))

    for number in range(6):
        crowd.start(lambda seed=number: shuffle(seed))
    crowd.join()
    assert deadlocks() == before


def test_a_cancel_stops_submits_for_good() -> None:
    ada = make_user()
    suite = make_suite(ada)
    crowd = Crowd()
    stop = threading.Event()

    def keep_submitting() -> None:
        while not stop.is_set():
            try:
                submit(suite)
            except InvalidInput:
                return
            except DatabaseError:
                raise

    for _ in range(4):
        crowd.start(keep_submitting)
    time.sleep(0.5)
    cancel_suite_row(actor=SYSTEM, suite=suite, reason="a test")
    stop_at = time.monotonic() + 10
    while crowd._threads and any(t.is_alive() for t in crowd._threads):
        assert time.monotonic() < stop_at
        time.sleep(0.05)
    stop.set()
    crowd.join()
    cancel_suite_tasks(suite.pk, stop_running=True, batch=100)
    assert counted(suite)[1] == 0
    counts = suite_counts([suite.pk])[suite.pk]
    assert counts.total == counts.cancelled == counted(suite)[0]
