"""The end of a campaign without a sweep: the last result completes the suite and frees its host."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from managers.services.early_end import end_emptied
from managers.services.session_threads import in_thread
from mitosis_protocol.enums import AssignmentState, SuiteState
from suites.models import TaskSuite
from tasks.rows import ClaimedTask
from tasks.services.report import commit_report, settle
from tests.integration.suites.hosts import Host
from tests.integration.suites.suite_world import act, make, ok, submit
from tests.integration.workers.people import Caller
from tests.property.lab import on_pool

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE_S = 30.0


class Campaign:
    """A suite with two tasks, both in the hands of its host."""

    def __init__(self, ada: Caller, **changes: object) -> None:
        assert ada.user is not None
        self.suite = make(ada, linger_seconds=0, **changes)
        self.host = Host(ada.user)
        for _ in range(2):
            submit(ada, self.suite)
        self.host.engage(self.suite)
        self.first, self.last = self.host.claim(2)

    async def end(self, claimed: ClaimedTask) -> None:
        report = commit_report(attempt_id=claimed.attempt_id, runner_id=self.host.id, exit_status=0)
        [settled] = await settle([report])
        assert settled.action == "end"

    @property
    def state(self) -> SuiteState:
        return TaskSuite.objects.get(pk=self.suite.pk).state

    @property
    def engaged(self) -> AssignmentState | None:
        row = self.host.engagement
        return None if row is None else row.state


async def becomes(expected: object, look: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (found := await in_thread(look)) != expected:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.02)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    on_pool(scenario)


def test_the_last_result_completes_a_closed_suite_and_lets_its_host_go(ada: Caller) -> None:
    campaign = Campaign(ada)
    ok(act(ada, campaign.suite, "close"))

    async def scenario() -> None:
        await campaign.end(campaign.first)
        assert await in_thread(end_emptied, [campaign.suite.pk]) == [], "a task is left"
        assert await in_thread(lambda: campaign.state) is SuiteState.CLOSED
        await campaign.end(campaign.last)
        await becomes(SuiteState.COMPLETE, lambda: campaign.state)
        await becomes(AssignmentState.CLEANUP, lambda: campaign.engaged)

    run(scenario)


def test_closing_a_suite_that_has_nothing_left_ends_it(ada: Caller) -> None:
    campaign = Campaign(ada)
    campaign.host.commit(campaign.first)
    campaign.host.commit(campaign.last)
    assert campaign.state is SuiteState.OPEN
    ok(act(ada, campaign.suite, "close"))
    assert campaign.state is SuiteState.COMPLETE
    assert campaign.engaged is AssignmentState.CLEANUP


def test_an_open_suite_waits_for_more_tasks(ada: Caller) -> None:
    campaign = Campaign(ada)

    async def scenario() -> None:
        await campaign.end(campaign.first)
        await campaign.end(campaign.last)

    run(scenario)
    assert end_emptied([campaign.suite.pk]) == []
    assert campaign.state is SuiteState.OPEN
    assert campaign.engaged is AssignmentState.EXECUTING


def test_only_the_suites_that_are_named_and_empty_complete(ada: Caller) -> None:
    empty, full, other = Campaign(ada), Campaign(ada), Campaign(ada)
    for campaign in (empty, full, other):
        ok(act(ada, campaign.suite, "close"))
    for campaign in (empty, other):
        campaign.host.commit(campaign.first)
        campaign.host.commit(campaign.last)
    assert end_emptied([empty.suite.pk, full.suite.pk]) == [empty.suite.pk]
    assert [one.state for one in (empty, full, other)] == [
        SuiteState.COMPLETE,
        SuiteState.CLOSED,
        SuiteState.CLOSED,
    ]
    assert end_emptied([empty.suite.pk]) == [], "once is enough"
