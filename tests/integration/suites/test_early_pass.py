"""A submit to a suite that nobody serves: an idle manager begins at once, and nothing else pays."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.locks import advisory_xact_lock
from managers.enums import ReleaseReason
from managers.models import SuiteAssignment
from managers.services.scheduler import LOCK
from mitosis_protocol.enums import ConnState, SuiteState
from suites.models import TaskSuite
from tests.integration.suites.hosts import Host
from tests.integration.suites.suite_world import act, make, ok, submit
from tests.integration.workers.people import Caller

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def suite(ada: Caller) -> TaskSuite:
    return make(ada)


def new_host(ada: Caller, *tags: str) -> Host:
    assert ada.user is not None
    return Host(ada.user, *tags)


def passes_of(ada: Caller, suite: TaskSuite) -> int:
    """How many scheduler passes a submit runs."""
    with CaptureQueriesContext(connection) as captured:
        submit(ada, suite)
    return sum("LEFT JOIN group_shares" in one["sql"] for one in captured.captured_queries)


@contextmanager
def somebody_schedules() -> Iterator[None]:
    """Another process holds the scheduler's lock."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with advisory_xact_lock(LOCK):
            held.set()
            release.wait(30)
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    try:
        yield
    finally:
        release.set()
        thread.join()


def test_the_first_submit_engages_an_idle_manager(ada: Caller, suite: TaskSuite) -> None:
    host = new_host(ada)
    assert passes_of(ada, suite) == 1
    assert host.engagement is not None
    assert host.engagement.suite_id == suite.pk
    assert passes_of(ada, suite) == 0, "the suite is served now"


def test_without_an_idle_manager_no_pass_is_run(ada: Caller, suite: TaskSuite) -> None:
    assert passes_of(ada, suite) == 0
    away = new_host(ada)
    away.set(conn_state=ConnState.LOST)
    assert passes_of(ada, suite) == 0
    busy = new_host(ada)
    other = make(ada)
    submit(ada, other)
    assert busy.engagement is not None
    assert passes_of(ada, suite) == 0


def test_a_host_that_lingers_for_a_suite_that_is_over_makes_room_at_once(
    ada: Caller, suite: TaskSuite
) -> None:
    host, other = new_host(ada), make(ada)
    submit(ada, other)
    host.engage(other)
    host.run()
    ok(act(ada, other, "close"))
    assert TaskSuite.objects.get(pk=other.pk).state is SuiteState.COMPLETE
    assert passes_of(ada, suite) == 1
    assert host.engagement is not None
    assert host.engagement.release_reason is ReleaseReason.MADE_ROOM
    assert passes_of(ada, suite) == 0, "it is on its way"


def test_a_resumed_suite_is_served_at_once(ada: Caller, suite: TaskSuite) -> None:
    ok(act(ada, suite, "pause"))
    host = new_host(ada)
    submit(ada, suite)
    assert host.engagement is None
    ok(act(ada, suite, "resume"))
    assert host.engagement is not None


def test_a_submit_stands_whatever_happens_to_the_pass(ada: Caller, suite: TaskSuite) -> None:
    host = new_host(ada)
    with somebody_schedules():
        submit(ada, suite)
    assert host.engagement is None
    assert SuiteAssignment.objects.count() == 0
    submit(ada, suite)
    assert host.engagement is not None
