"""`max_running` of a suite bounds what its managers hold together, also in one statement, and a
suite that was cancelled gives nothing.
"""

import asyncio
import uuid

import pytest

from core.pg import get_pool
from mitosis_protocol.enums import SuiteState
from suites.models import TaskSuite
from tasks import store
from tasks.services.manager_claims import ManagerClaim, claim_tasks, close_manager_claims
from tasks.statements import array
from tests.property.lab import Lab, lab_fixture, on_pool

lab = pytest.fixture(name="lab")(lab_fixture)


def test_managers_that_ask_together_share_the_cap(lab: Lab):
    TaskSuite.objects.filter(pk=lab.suite_id).update(max_running=5)
    lab.submit(20, in_suite=True)
    managers = lab.runner_ids[:2]
    engaged = [lab.engage(manager) for manager in managers]
    assert [len(tasks) for tasks in _claim_together(managers, engaged, [3, 4])] == [3, 2]
    assert [len(tasks) for tasks in _claim_together(managers, engaged, [1, 1])] == [0, 0]


def test_without_a_cap_everybody_gets_what_was_asked(lab: Lab):
    lab.submit(20, in_suite=True)
    managers = lab.runner_ids[:2]
    engaged = [lab.engage(manager) for manager in managers]
    assert [len(tasks) for tasks in _claim_together(managers, engaged, [3, 4])] == [3, 4]


def test_a_cancelled_suite_hands_out_nothing(lab: Lab):
    """As when a host gives back what it held, before the sweep has ended it."""
    lab.submit(3, in_suite=True)
    manager = lab.runner_ids[0]
    engaged = [lab.engage(manager)]
    TaskSuite.objects.filter(pk=lab.suite_id).update(state=SuiteState.CANCELLED)
    assert _claim_together([manager], engaged, [3]) == [[]]
    TaskSuite.objects.filter(pk=lab.suite_id).update(state=SuiteState.OPEN)
    assert len(_claim_together([manager], engaged, [3])[0]) == 3


@pytest.mark.parametrize(("cap", "patience_s"), [(2, 0.5), (None, 10.0)])
def test_a_socket_waits_for_its_turn_where_a_cap_counts(
    lab: Lab, cap: int | None, patience_s: float
):
    TaskSuite.objects.filter(pk=lab.suite_id).update(max_running=cap)
    lab.submit(5, in_suite=True)
    manager = lab.runner_ids[0]
    claim = ManagerClaim(
        runner_id=manager,
        session_epoch=0,
        claim_id=uuid.uuid4(),
        want=3,
        assignment_id=lab.engage(manager),
    )

    async def ask_while_another_claims() -> tuple[bool, int]:
        try:
            async with get_pool().transaction() as other:
                turn = {"assignment_ids": array([claim.assignment_id])}
                await store.SUITE_CAP.fetch_on(other, turn)
                asked = asyncio.create_task(claim_tasks(claim))
                done, _ = await asyncio.wait({asked}, timeout=patience_s)
            return bool(done), len(await asked)
        finally:
            await close_manager_claims()

    assert on_pool(ask_while_another_claims) == ((True, 3) if cap is None else (False, 2))


def _claim_together(managers: list[int], engaged: list[int], wants: list[int]) -> list[list[int]]:
    rows = store.CLAIM_FOR_SUITE.fetch_sync(
        {
            "runner_ids": array(managers),
            "session_epochs": array([None] * len(managers)),
            "claim_ids": array(uuid.uuid4() for _ in managers),
            "wants": array(wants),
            "assignment_ids": array(engaged),
        }
    )
    given: list[list[int]] = [[] for _ in managers]
    for row in rows:
        if row.task_id is not None:
            given[row.ord - 1].append(row.task_id)
    return given
