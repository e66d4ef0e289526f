"""Who gets which task: eligibility, order, repetition, fences, and many askers in one statement."""

import uuid

import pytest
from django.db import connection, transaction

from mitosis_protocol.enums import Outcome
from runners.models import Runner
from tasks.new_task import RetryPolicy
from tasks.rows import ClaimRequest, ClaimVerdict, SettleOp
from tests.property.lab import Lab, lab_fixture, locked_elsewhere, query

lab = pytest.fixture(name="lab")(lab_fixture)


def test_claim_takes_the_highest_priority_and_then_the_oldest(lab: Lab):
    low = lab.submit_one(priority=-1)
    old, young = (ref.id for ref in lab.submit(2, priority=5))
    given = [task.task_id for task in lab.claim(lab.runner_ids[0], want=3).tasks]
    assert given == [old, young, low]


def test_claim_opens_an_attempt_and_moves_the_fence(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    [task] = lab.claim(runner).tasks
    row = lab.task(task_id)
    assert (row["state"], row["attempt"], row["attempt_id"]) == (2, 1, task.attempt_id)
    attempt = lab.attempt(task.attempt_id)
    assert (attempt["task_id"], attempt["attempt"], attempt["runner_id"]) == (task_id, 1, runner)
    assert attempt["ending"] is None
    assert lab.events(task_id) == [(1, 0), (2, 2)]
    assert bytes(task.spec).startswith(b'{"args"')


def test_a_task_is_claimed_once(lab: Lab):
    lab.submit_one()
    first, second = lab.runner_ids[:2]
    assert len(lab.claim(first).tasks) == 1
    assert lab.claim(second).tasks == ()
    assert lab.claim(second).verdict is ClaimVerdict.NOTHING


def test_task_tags_must_be_within_the_runners_tags(lab: Lab):
    bare = lab.submit_one()
    gpu = lab.submit_one(tags=["gpu"])
    both = lab.submit_one(tags=["gpu", "big"])
    plain, some, all_of_it = (
        lab.add_runner(tags=tags) for tags in ((), ("gpu",), ("big", "gpu", "more"))
    )
    assert [task.task_id for task in lab.claim(plain, want=9).tasks] == [bare]
    assert [task.task_id for task in lab.claim(some, want=9).tasks] == [gpu]
    assert [task.task_id for task in lab.claim(all_of_it, want=9).tasks] == [both]


def test_read_role_or_missing_consent_gives_nothing(lab: Lab):
    lab.submit_one()
    for role, consent in ((0, 1), (1, 0), (1, 2)):
        assert lab.claim(lab.add_runner(role=role, consent=consent)).tasks == ()


def test_tasks_of_a_foreign_group_are_invisible(lab: Lab):
    other = Lab(runners=1)
    other.submit_one()
    assert lab.claim(lab.runner_ids[0]).tasks == ()


def test_suite_tasks_are_invisible_to_independent_workers_and_the_reverse(lab: Lab):
    independent = lab.submit_one()
    [managed] = lab.submit(1, in_suite=True)
    runner = lab.runner_ids[0]
    assert [task.task_id for task in lab.claim(runner, want=9).tasks] == [independent]
    given = lab.claim_from_suite(runner, want=9).tasks
    assert [(task.task_id, task.suite_id) for task in given] == [(managed.id, lab.suite_id)]


def test_runners_that_may_not_ask_hear_why(lab: Lab):
    lab.submit_one()
    revoked, resting, old_session, silent = (lab.add_runner() for _ in range(4))
    Runner.objects.filter(pk=revoked).update(revoked_at="2020-01-01T00:00:00Z")
    Runner.objects.filter(pk=resting).update(desired_state=1)
    Runner.objects.filter(pk=old_session).update(session_epoch=7)
    lab.expire_lease(silent)
    assert lab.claim(revoked).verdict is ClaimVerdict.REVOKED
    assert lab.claim(resting).verdict is ClaimVerdict.INACTIVE
    assert lab.claim(old_session, epoch=6).verdict is ClaimVerdict.SUPERSEDED
    assert lab.claim(silent).verdict is ClaimVerdict.LEASE_LOST
    assert lab.claim(10**15).verdict is ClaimVerdict.REVOKED
    assert len(lab.claim(old_session, epoch=7).tasks) == 1


def test_a_busy_worker_is_handed_the_same_attempt_again(lab: Lab):
    lab.submit(2)
    runner = lab.runner_ids[0]
    first = lab.claim(runner, exclusive=True).tasks
    again = lab.claim(runner, want=5, exclusive=True).tasks
    assert [task.attempt_id for task in again] == [task.attempt_id for task in first]
    assert again[0].is_repeat
    assert not first[0].is_repeat


def test_a_repeated_fetch_gets_what_the_lost_answer_carried(lab: Lab):
    lab.submit(3)
    runner, claim_id = lab.runner_ids[0], uuid.uuid4()
    first = lab.claim(runner, want=2, claim_id=claim_id).tasks
    again = lab.claim(runner, want=2, claim_id=claim_id).tasks
    assert [task.attempt_id for task in again] == [task.attempt_id for task in first]
    lab.commit(first[0].attempt_id, runner)
    left = lab.claim(runner, want=2, claim_id=claim_id).tasks
    assert [task.attempt_id for task in left] == [first[1].attempt_id]


def test_a_stolen_claim_id_gives_nothing_away(lab: Lab):
    lab.submit_one()
    first, second = lab.runner_ids[:2]
    claim_id = uuid.uuid4()
    lab.claim(first, claim_id=claim_id)
    assert lab.claim(second, claim_id=claim_id).tasks == ()


def test_a_task_that_backs_off_is_not_due(lab: Lab):
    task_id = lab.submit_one(retry=RetryPolicy(backoff_s=60, backoff_max_s=60))
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    assert lab.report(SettleOp.ABORT, attempt, runner, charge=True).action == "requeue"
    assert lab.task(task_id)["state"] == 1
    assert lab.claim(runner).verdict is ClaimVerdict.NOTHING


def test_an_excluded_runner_does_not_get_the_task_again(lab: Lab):
    lab.submit_one()
    first, second = lab.runner_ids[:2]
    attempt = lab.claim_attempt(first)
    lab.report(SettleOp.ABORT, attempt, first, charge=True, exclude=True)
    assert lab.claim(first).verdict is ClaimVerdict.NOTHING
    assert len(lab.claim(second).tasks) == 1


def test_an_excluded_task_does_not_hide_the_ones_behind_it(lab: Lab):
    poison = lab.submit_one(priority=9)
    first = lab.runner_ids[0]
    attempt = lab.claim_attempt(first)
    lab.report(SettleOp.ABORT, attempt, first, charge=True, exclude=True)
    good = lab.submit_one()
    assert [task.task_id for task in lab.claim(first, want=5).tasks] == [good]
    assert lab.task(poison)["state"] == 1


def test_a_pinned_task_waits_for_its_runner(lab: Lab):
    first, second = lab.runner_ids[:2]
    pinned = lab.submit_one(pinned_runner_id=second)
    assert lab.claim(first).tasks == ()
    assert [task.task_id for task in lab.claim(second).tasks] == [pinned]


def test_one_task_per_concurrency_key_is_held_at_a_time(lab: Lab):
    keyed = lab.submit(3, concurrency_key="database")
    free = lab.submit_one(concurrency_key="other")
    first, second = lab.runner_ids[:2]
    given = lab.claim(first, want=9).tasks
    assert [task.task_id for task in given] == [keyed[0].id, free]
    assert lab.claim(second, want=9).tasks == ()
    lab.commit(given[0].attempt_id, first)
    assert [task.task_id for task in lab.claim(second, want=9).tasks] == [keyed[1].id]


def test_a_task_out_of_budget_or_attempts_is_not_claimed(lab: Lab):
    spent, tired = (ref.id for ref in lab.submit(2))
    _set(spent, "failures = max_failures")
    _set(tired, "attempt = max_attempts")
    assert lab.claim(lab.runner_ids[0], want=9).tasks == ()


def test_a_claim_forgets_the_runner_that_lost_the_task(lab: Lab):
    task_id = lab.submit_one()
    first, second = lab.runner_ids[:2]
    lab.claim_attempt(first)
    lab.expire_lease(first)
    lab.reap()
    assert lab.task(task_id)["lost_runner_id"] == first
    lab.claim_attempt(second)
    row = lab.task(task_id)
    assert (row["lost_runner_id"], row["lost_charge"], row["attempt"]) == (None, 0, 2)


def test_many_runners_in_one_statement_get_different_tasks(lab: Lab):
    runners = [lab.add_runner(tags=[f"host-{n}"]) for n in range(20)]
    refs = lab.submit(50)
    claims = lab.claim_all(
        [ClaimRequest(runner_id=runner, claim_id=uuid.uuid4(), want=2) for runner in runners]
    )
    given = [task.task_id for claim in claims for task in claim.tasks]
    assert given == [ref.id for ref in refs[:40]]
    holders = query(
        "SELECT t.id, t.runner_id, a.runner_id AS attempted_by FROM active_tasks t"
        " JOIN task_attempts a ON a.id = t.attempt_id WHERE t.id = ANY (%s)",
        given,
    )
    wanted = {
        task.task_id: runner
        for runner, claim in zip(runners, claims, strict=True)
        for task in claim.tasks
    }
    assert {row["id"]: row["runner_id"] for row in holders} == wanted
    assert {row["id"]: row["attempted_by"] for row in holders} == wanted


def test_runners_with_overlapping_lanes_never_share_a_task(lab: Lab):
    plain, gpu = lab.add_runner(), lab.add_runner(tags=["gpu"])
    lab.submit(2)
    lab.submit(2, tags=["gpu"])
    first, second = lab.claim_all(
        [ClaimRequest(runner_id=runner, claim_id=uuid.uuid4(), want=2) for runner in (plain, gpu)]
    )
    assert len(first.tasks) == 2
    assert second.verdict is ClaimVerdict.AGAIN
    assert len(lab.claim(gpu, want=2).tasks) == 2


def test_the_same_request_twice_in_one_statement_is_served_once(lab: Lab):
    lab.submit(4)
    runner = lab.runner_ids[0]
    request = ClaimRequest(runner_id=runner, claim_id=uuid.uuid4(), is_exclusive=True)
    first, second = lab.claim_all([request, request])
    assert (len(first.tasks), second.verdict) == (1, ClaimVerdict.AGAIN)
    [held] = query("SELECT count(*) AS n FROM active_tasks WHERE runner_id = %s", runner)
    assert held["n"] == 1


def test_a_claim_skips_rows_locked_by_another_and_says_so(lab: Lab):
    locked, free = (ref.id for ref in lab.submit(2))
    runner = lab.runner_ids[0]
    with locked_elsewhere(locked):
        assert [task.task_id for task in lab.claim(runner).tasks] == [free]
        assert lab.claim(runner).verdict is ClaimVerdict.AGAIN
    assert [task.task_id for task in lab.claim(runner).tasks] == [locked]


def test_the_database_refuses_a_second_task_for_an_exclusive_worker(lab: Lab):
    lab.submit(2)
    lab.claim(lab.runner_ids[0], exclusive=True)
    other = lab.claim(lab.runner_ids[1], exclusive=True).tasks[0].task_id
    with pytest.raises(Exception, match="one_per_exclusive_runner"), transaction.atomic():
        _set(other, f"runner_id = {lab.runner_ids[0]}")


def test_a_finished_task_is_not_claimed_again(lab: Lab):
    lab.submit_one()
    runner = lab.runner_ids[0]
    lab.commit(lab.claim_attempt(runner), runner, Outcome.FAILED)
    assert lab.claim(runner).tasks == ()


def _set(task_id: int, assignment: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE active_tasks SET {assignment} WHERE id = %s", [task_id])
