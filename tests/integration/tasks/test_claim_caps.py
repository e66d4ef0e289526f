"""`max_running` of a suite bounds what its managers hold together, also in one statement."""

import uuid

import pytest

from suites.models import TaskSuite
from tasks import store
from tasks.statements import array
from tests.property.lab import Lab, lab_fixture

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
