"""Many connections at the same fleet: one live engagement per manager, no deadlock, no error."""

import random
import threading
import time
from collections.abc import Callable

import pytest
from django.db import connection, connections
from django.db.models import Count

from accounts.actors import SYSTEM
from core.errors import Conflict, NotFound
from managers.enums import ReleaseReason
from managers.models import NodeManager, SuiteAssignment
from managers.services import attributes, eligibility, engagement, quarantine, wishes
from managers.services.expiry import expire_managers
from managers.services.heartbeat import Beat, record_beat
from managers.services.scheduler import run_pass
from mitosis_protocol.enums import AssignmentState, ManagerState
from runners.models import Runner
from suites.models import TaskSuite
from suites.services.lifecycle import close_suite
from suites.services.pausing import pause_suite, resume_suite
from suites.services.sweeps import complete_drained
from tests.integration.managers.fleet import connect, register
from tests.integration.suites.campaign import end_tasks, make_suite, make_user, submit

pytestmark = pytest.mark.django_db(transaction=True)

RUN_S = 8.0
SEED = 20251111


class Chaos:
    """Random acts on a small fleet; whatever is refused was refused for a reason."""

    def __init__(self, fleet: list[Runner], suites: list[TaskSuite], seed: int) -> None:
        self.fleet = fleet
        self.suites = suites
        self.dice = random.Random(seed)
        self.acts: list[Callable[[], object]] = [
            run_pass,
            run_pass,
            self.submit_and_end,
            self.obey,
            self.obey,
            self.beat,
            self.wish,
            self.retag,
            self.change_suite,
            eligibility.sweep_matches,
            quarantine.probe_quarantined,
            lambda: complete_drained(batch=10),
            lambda: expire_managers(grace_s=0, lease_ttl_s=1, mass_expiry_ratio=1.0, batch=10),
        ]

    def run(self, until: float) -> None:
        while time.monotonic() < until:
            try:
                self.dice.choice(self.acts)()
            except (Conflict, NotFound):
                continue

    def submit_and_end(self) -> None:
        ids = submit(self.dice.choice(self.suites), 3)
        end_tasks(ids[:2])

    def obey(self) -> None:
        """A manager does what its engagement asks for."""
        runner = self.dice.choice(self.fleet)
        row = engagement.find_engagement(runner.pk)
        if row is None:
            NodeManager.objects.filter(pk=runner.pk).update(state=ManagerState.IDLE)
            return
        keys = {"manager_id": runner.pk, "assignment_id": row.pk}
        match row.state:
            case AssignmentState.ASSIGNED:
                engagement.begin_preparation(**keys)
            case AssignmentState.PREPARING:
                engagement.finish_preparation(**keys)
            case AssignmentState.CLEANUP:
                engagement.finish_engagement(**keys)
            case _:
                return

    def beat(self) -> None:
        record_beat(Beat(self.dice.choice(self.fleet).pk, 0, ManagerState.IDLE), ttl_s=120)

    def wish(self) -> None:
        runner = self.dice.choice(self.fleet)
        act = self.dice.choice(
            [wishes.drain_manager, wishes.undrain_manager, wishes.release_manager]
        )
        act(actor=SYSTEM, runner=runner)

    def retag(self) -> None:
        tags = self.dice.sample(["gpu", "linux"], self.dice.randint(0, 2))
        attributes.replace_tags(actor=SYSTEM, runner=self.dice.choice(self.fleet), tags=tags)

    def change_suite(self) -> None:
        act = self.dice.choice([pause_suite, resume_suite, resume_suite, close_suite])
        act(actor=SYSTEM, suite=self.dice.choice(self.suites))


def deadlocks() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


@pytest.mark.timeout(180)
def test_a_fleet_under_random_acts_stays_whole() -> None:
    ada = make_user()
    suites = [make_suite(ada, tags=tags) for tags in ([], ["gpu"], ["linux"])]
    fleet = [register(ada, "gpu", "linux") for _ in range(6)]
    connect(*fleet)
    before = deadlocks()
    connection.close()  # the pool has eight: all of them are for the crowd
    errors: list[BaseException] = []
    until = time.monotonic() + RUN_S

    def work(seed: int) -> None:
        try:
            Chaos(fleet, suites, seed).run(until)
        except BaseException as error:  # noqa: BLE001 - the test fails with it below
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(SEED + number,)) for number in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not errors, errors
    assert deadlocks() == before
    live = SuiteAssignment.objects.filter(released_at__isnull=True).values("manager")
    assert all(row["n"] == 1 for row in live.annotate(n=Count("pk")))
    assert not SuiteAssignment.objects.filter(
        state=AssignmentState.RELEASED, release_reason__isnull=True
    ).exists()


def test_an_idle_fleet_comes_to_rest() -> None:
    """After the last change a few passes reach a state that further passes leave alone."""
    ada = make_user()
    suite = make_suite(ada, linger_seconds=0)
    fleet = [register(ada) for _ in range(3)]
    connect(*fleet)
    ids = submit(suite, 12)
    run_pass()
    for runner in fleet:
        row = engagement.find_engagement(runner.pk)
        assert row is not None
        engagement.begin_preparation(manager_id=runner.pk, assignment_id=row.pk)
        engagement.finish_preparation(manager_id=runner.pk, assignment_id=row.pk)
    end_tasks(ids)
    close_suite(actor=SYSTEM, suite=suite)
    complete_drained(batch=10)
    run_pass()
    assert {reason for _, reason in run_pass().released} == {ReleaseReason.DONE}
    for row in SuiteAssignment.objects.filter(released_at__isnull=True):
        engagement.finish_engagement(manager_id=row.manager_id, assignment_id=row.pk)
    assert run_pass().count == 0
    assert run_pass().count == 0
