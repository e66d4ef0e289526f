"""Cancelling: waiting tasks end at once, held ones are told, nobody's result slips through."""

import pytest

from mitosis_protocol.enums import Outcome, ReportAnswer, TaskResultMessage
from tasks.models import ActiveTask
from tasks.rows import SettleOp
from tasks.services import cancel
from tests.property.lab import Lab, lab_fixture, locked_elsewhere

lab = pytest.fixture(name="lab")(lab_fixture)


def test_a_waiting_task_is_archived_as_existing_clients_expect(lab: Lab):
    task_id = lab.submit_one()
    assert lab.cancel(task_id) == ["end"]
    row = lab.task(task_id)
    assert (row["where"], row["state"], row["outcome"]) == ("archived", 4, Outcome.CANCELLED.code)
    assert (row["exit_status"], row["msg"]) == (0, TaskResultMessage.USER_CANCELLATION.code)
    assert row["reporter_uuid"] is None
    assert lab.claim(lab.runner_ids[0]).tasks == ()


def test_a_held_task_is_told_and_keeps_its_runner(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    assert lab.cancel(task_id) == ["cancelling"]
    row = lab.task(task_id)
    assert (row["state"], row["runner_id"]) == (2, runner)
    assert row["cancel_requested_at"] is not None
    assert lab.inventory(runner, [attempt]) == {attempt: "cancel"}


def test_a_second_cancel_changes_nothing(lab: Lab):
    task_id = lab.submit_one()
    lab.claim_attempt(lab.runner_ids[0])
    lab.cancel(task_id)
    before = lab.task(task_id)
    assert lab.cancel(task_id) == ["cancelling"]
    assert lab.task(task_id) == before


def test_existing_clients_cannot_cancel_what_runs(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    assert lab.cancel(task_id, held=False) == ["held"]
    assert lab.task(task_id)["cancel_requested_at"] is None
    assert lab.commit(attempt, runner).outcome is Outcome.SUCCEEDED


def test_an_ended_task_cannot_be_cancelled(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    lab.commit(lab.claim_attempt(runner), runner)
    assert lab.cancel(task_id, 10**15) == ["gone", "gone"]
    assert lab.task(task_id)["outcome"] == Outcome.SUCCEEDED.code


def test_cancelling_a_lost_task_closes_the_door_for_its_late_result(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    lab.expire_lease(runner)
    lab.reap()
    assert lab.cancel(task_id) == ["end"]
    assert lab.commit(attempt, runner).answer is ReportAnswer.STALE_ATTEMPT
    assert lab.task(task_id)["outcome"] == Outcome.CANCELLED.code


def test_a_cancelled_task_never_returns_to_the_queue(lab: Lab):
    runner = lab.runner_ids[0]
    for op in (SettleOp.RELEASE, SettleOp.ABORT, SettleOp.LOST):
        task_id = lab.submit_one()
        attempt = lab.claim_attempt(runner)
        lab.cancel(task_id)
        lab.report(op, attempt, runner, charge=False)
        assert lab.task(task_id)["where"] == "archived"


def test_a_list_is_cancelled_in_batches_with_one_answer_each(lab: Lab):
    waiting = [ref.id for ref in lab.submit(5)]
    runner = lab.runner_ids[0]
    held = lab.claim(runner).tasks[0].task_id
    found = cancel.cancel_tasks([*waiting, 10**15], stop_running=True, batch=2)
    assert sorted(found.ended_ids) == [task_id for task_id in waiting if task_id != held]
    assert (found.stopping_ids, found.gone_ids, found.busy_ids) == ([held], [10**15], [])
    assert found.count == 5
    [order] = cancel.stop_orders(found.stopping_ids)
    assert order.runner_id == runner
    assert order.attempt_id == lab.task(held)["attempt_id"]


def test_a_filter_cancels_what_it_finds_and_nothing_else(lab: Lab):
    chosen = [ref.id for ref in lab.submit(5, labels=["x"])]
    [spared] = lab.submit(1)
    tasks = ActiveTask.objects.filter(group_id=lab.group_id, labels__contains=["x"])
    found = cancel.cancel_matching(tasks, stop_running=False, batch=2)
    assert found.ended_ids == chosen
    assert lab.task(spared.id)["where"] == "active"


def test_cancelling_a_suite_leaves_its_counters_exact(lab: Lab):
    lab.submit(4, in_suite=True)
    [task] = lab.claim_from_suite(lab.runner_ids[0]).tasks
    found = cancel.cancel_suite_tasks(lab.suite_id, stop_running=True, batch=3)
    assert (len(found.ended_ids), found.stopping_ids) == (3, [task.task_id])
    assert lab.counts() == lab.real_counts()
    lab.commit(task.attempt_id, lab.runner_ids[0])
    assert (
        lab.counts()
        == lab.real_counts()
        == {
            "total": 4,
            "pending": 0,
            "succeeded": 0,
            "failed": 0,
            "cancelled": 4,
        }
    )


def test_a_locked_task_is_undecided_until_it_is_free(lab: Lab):
    task_id = lab.submit_one()
    with locked_elsewhere(task_id):
        assert lab.cancel(task_id) == ["busy"]
    assert lab.cancel(task_id) == ["end"]
