"""Leases that end, runners that vanish, inventories, deadlines: nothing lost, nothing twice."""

import pytest
from django.db import connection

from core.locks import try_advisory_xact_lock
from mitosis_protocol.enums import Outcome, ReportAnswer
from tasks.enums import AttemptEnd
from tasks.new_task import RetryPolicy
from tasks.rows import ClaimVerdict
from tasks.services import reclaim
from tasks.services.heartbeat import reconcile
from tests.property.lab import Lab, lab_fixture, locked_elsewhere, on_pool, query

lab = pytest.fixture(name="lab")(lab_fixture)

OK, DUPLICATE, STALE = ReportAnswer.OK, ReportAnswer.OK_DUPLICATE, ReportAnswer.STALE_ATTEMPT
TERMS = {"grace_s": 5, "patience_s": 120, "mass_expiry_ratio": 0.3}


def test_an_ended_lease_requeues_what_its_runner_holds(lab: Lab):
    runner = lab.runner_ids[0]
    leased, started, finishing = (ref.id for ref in lab.submit(3))
    a, b, c = (task.attempt_id for task in lab.claim(runner, want=3).tasks)
    lab.start(b, runner)
    lab.finish(c, runner)
    lab.expire_lease(runner)
    assert lab.reap() == ["requeue"] * 3
    assert [lab.task(t)["failures"] for t in (leased, started, finishing)] == [0, 1, 1]
    for task_id, attempt in ((leased, a), (started, b), (finishing, c)):
        row = lab.task(task_id)
        assert (row["state"], row["runner_id"], row["lost_runner_id"]) == (1, None, runner)
        assert lab.attempt(attempt)["ending"] == AttemptEnd.LOST.code
    assert lab.reap() == []


def test_a_running_lease_is_left_alone(lab: Lab):
    lab.submit_one()
    attempt = lab.claim_attempt(lab.runner_ids[0])
    assert lab.reap() == []
    assert lab.commit(attempt, lab.runner_ids[0]).answer is OK


def test_the_grace_of_the_reaper_counts(lab: Lab):
    lab.submit_one()
    runner = lab.runner_ids[0]
    lab.claim_attempt(runner)
    lab.expire_lease(runner)
    assert lab.reap(grace_s=7200) == []
    assert lab.reap(grace_s=5) == ["requeue"]


def test_reaping_fences_the_old_session(lab: Lab):
    lab.submit(2)
    runner = lab.runner_ids[0]
    lab.claim_attempt(runner, epoch=0)
    lab.expire_lease(runner)
    lab.reap()
    lab.renew_lease(runner)
    assert lab.claim(runner, epoch=0).verdict is ClaimVerdict.SUPERSEDED
    [lease] = query("SELECT session_epoch FROM runner_leases WHERE runner_id = %s", runner)
    [row] = query("SELECT session_epoch, conn_state FROM runners WHERE id = %s", runner)
    assert (lease["session_epoch"], row["session_epoch"], row["conn_state"]) == (1, 1, 2)


def test_a_lost_task_without_budget_ends_failed(lab: Lab):
    task_id = lab.submit_one(retry=RetryPolicy(max_failures=1))
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    lab.start(attempt, runner)
    lab.expire_lease(runner)
    assert lab.reap() == ["end"]
    row = lab.task(task_id)
    assert (row["outcome"], row["failures"]) == (Outcome.FAILED.code, 1)
    assert lab.commit(attempt, runner).answer is STALE


def test_an_unstarted_task_survives_the_loss_of_its_only_try(lab: Lab):
    task_id = lab.submit_one(retry=RetryPolicy(max_failures=1))
    runner = lab.runner_ids[0]
    lab.claim_attempt(runner)
    lab.expire_lease(runner)
    assert lab.reap() == ["requeue"]
    assert lab.task(task_id)["failures"] == 0


def test_a_cancelled_task_of_a_dead_runner_ends_cancelled(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    lab.cancel(task_id)
    lab.expire_lease(runner)
    assert lab.reap() == ["end"]
    assert lab.task(task_id)["outcome"] == Outcome.CANCELLED.code
    assert lab.commit(attempt, runner).answer is STALE


def test_a_task_that_is_being_committed_is_left_to_the_next_sweep(lab: Lab):
    lab.submit(2)
    runner = lab.runner_ids[0]
    first, _ = lab.claim(runner, want=2).tasks
    lab.expire_lease(runner)
    with locked_elsewhere(first.task_id):
        assert lab.reap() == ["requeue"]
    assert lab.reap() == ["requeue"]


def test_a_removed_runner_cannot_report_any_more(lab: Lab):
    lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    swept = reclaim.reclaim_from_runners(
        [runner], charge=False, max_tasks=100, reason="worker removed"
    )
    assert (swept.requeued, swept.ended) == (1, 0)
    assert lab.commit(attempt, runner).answer is STALE
    assert lab.attempt(attempt)["reason"] == "worker removed"


def test_a_removed_runner_has_no_say_in_what_it_lost_before(lab: Lab):
    task_id = lab.submit_one()
    runner, other = lab.runner_ids
    attempt = lab.claim_attempt(runner)
    lab.start(attempt, runner)
    lab.expire_lease(runner)
    assert lab.reap() == ["requeue"]
    reclaim.reclaim_from_runners([runner], charge=False, max_tasks=100, reason="worker removed")
    assert lab.task(task_id)["lost_runner_id"] is None
    assert lab.commit(attempt, runner).answer is STALE
    assert lab.finish(attempt, runner) is STALE
    assert lab.adopt([attempt], runner) == [STALE]
    assert lab.claim_attempt(other) != attempt


def test_a_removal_leaves_alone_what_others_lost(lab: Lab):
    lab.submit_one()
    runner, other = lab.runner_ids
    attempt = lab.claim_attempt(runner)
    lab.expire_lease(runner)
    lab.reap()
    reclaim.reclaim_from_runners([other], charge=False, max_tasks=100, reason="worker removed")
    assert lab.commit(attempt, runner).answer is OK


def test_an_adopted_attempt_goes_on_as_if_nothing_happened(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    lab.start(attempt, runner)
    lab.expire_lease(runner)
    lab.reap()
    assert lab.adopt([attempt], runner) == [OK]
    assert lab.adopt([attempt], runner) == [DUPLICATE]
    row = lab.task(task_id)
    assert (row["state"], row["runner_id"], row["failures"]) == (2, runner, 0)
    assert lab.attempt(attempt)["ending"] is None
    assert lab.claim(lab.runner_ids[1]).tasks == ()
    assert lab.commit(attempt, runner).answer is OK


def test_an_attempt_that_was_claimed_again_is_not_adopted(lab: Lab):
    task_id = lab.submit_one()
    runner, other = lab.runner_ids[:2]
    attempt = lab.claim_attempt(runner)
    lab.expire_lease(runner)
    lab.reap()
    newer = lab.claim_attempt(other)
    assert lab.adopt([attempt], runner) == [STALE]
    row = lab.task(task_id)
    assert (row["runner_id"], row["attempt_id"]) == (other, newer)


def test_a_suites_task_is_only_adopted_by_an_engaged_manager(lab: Lab):
    lab.submit(1, in_suite=True)
    runner = lab.runner_ids[0]
    [task] = lab.claim_from_suite(runner).tasks
    lab.expire_lease(runner)
    lab.reap()
    assert lab.adopt([task.attempt_id], runner) == [STALE]
    assignment_id = lab.engage(runner)
    assert lab.adopt([task.attempt_id], runner, assignment_id=assignment_id) == [OK]
    assert lab.task(task.task_id)["assignment_id"] == assignment_id


def test_an_inventory_is_told_the_truth_about_every_attempt(lab: Lab):
    runner, other = lab.runner_ids[:2]
    lab.submit(6)
    kept, cancelled, lost, committed, absent = lab.claim(runner, want=5).tasks
    foreign = lab.claim_attempt(other)
    lab.cancel(cancelled.task_id)
    lab.commit(committed.attempt_id, runner)
    query("UPDATE active_tasks SET state=1, runner_id=NULL, lost_runner_id=%s WHERE id=%s"
          " RETURNING id", runner, lost.task_id)  # fmt: skip
    said = [
        kept.attempt_id,
        cancelled.attempt_id,
        lost.attempt_id,
        committed.attempt_id,
        foreign,
        10**15,
    ]
    assert lab.inventory(runner, said) == {
        kept.attempt_id: "kept",
        cancelled.attempt_id: "cancel",
        lost.attempt_id: "lost",
        committed.attempt_id: "settled",
        foreign: "revoked",
        10**15: "revoked",
        absent.attempt_id: "missing",
    }
    assert absent.attempt_id not in lab.inventory(runner, said, settle_s=60)


def test_reconciling_adopts_what_was_lost_and_requeues_what_is_missing(lab: Lab):
    runner = lab.runner_ids[0]
    lab.submit(2)
    lost, absent = lab.claim(runner, want=2).tasks
    lab.expire_lease(runner)
    lab.reap()
    lab.renew_lease(runner)
    lab.adopt([absent.attempt_id], runner)
    found = on_pool(
        lambda: reconcile(runner_id=runner, attempt_ids=[lost.attempt_id, 10**15], settle_s=0)
    )
    assert (found.adopted, found.revoked) == ([lost.attempt_id], [10**15])
    assert found.missing == [absent.attempt_id]
    assert lab.task(lost.task_id)["runner_id"] == runner
    row = lab.task(absent.task_id)
    assert (row["state"], row["runner_id"], row["failures"]) == (1, None, 0)


def test_a_task_far_over_its_timeout_is_ended_and_fenced(lab: Lab):
    task_id, other_id = (ref.id for ref in lab.submit(2))
    runner = lab.runner_ids[0]
    attempt, _ = (task.attempt_id for task in lab.claim(runner, want=2).tasks)
    lab.start(attempt, runner)
    _age(task_id, "started_at", 60 + 59)
    assert lab.end_overdue() == []
    _age(task_id, "started_at", 60 + 61)
    assert lab.end_overdue() == ["end"]
    row = lab.task(task_id)
    assert (row["outcome"], row["state"]) == (Outcome.TIMEOUT.code, 4)
    assert lab.attempt(attempt)["ending"] == AttemptEnd.REVOKED.code
    assert lab.commit(attempt, runner).answer is STALE
    assert lab.task(other_id)["state"] == 2


def test_workers_of_the_existing_wire_get_time_to_fetch_and_upload(lab: Lab):
    task_id = lab.submit_one()
    lab.claim(lab.runner_ids[0], exclusive=True)
    _age(task_id, "started_at", 60 + 599)
    assert lab.end_overdue() == []
    _age(task_id, "started_at", 60 + 601)
    assert lab.end_overdue() == ["end"]


def test_a_runner_silent_after_a_cancel_loses_the_task(lab: Lab):
    task_id = lab.submit_one()
    lab.claim_attempt(lab.runner_ids[0])
    lab.cancel(task_id)
    assert lab.end_overdue() == []
    _age(task_id, "cancel_requested_at", 31)
    assert lab.end_overdue() == ["end"]
    assert lab.task(task_id)["outcome"] == Outcome.CANCELLED.code


def test_the_sweep_runs_the_same_statement_and_counts(lab: Lab):
    lab.submit(3)
    runner = lab.runner_ids[0]
    lab.claim(runner, want=3)
    lab.expire_lease(runner)
    swept = reclaim.reap_expired(**TERMS, max_tasks=2)
    assert (swept.requeued, swept.ended, swept.is_paused) == (2, 0, False)
    assert reclaim.reap_expired(**TERMS, max_tasks=2).requeued == 1


def test_a_fleet_that_expires_at_once_is_not_reaped(lab: Lab):
    runners = [lab.add_runner() for _ in range(4)]
    lab.submit(4)
    for runner in runners:
        lab.claim_attempt(runner)
        lab.expire_lease(runner, ago_s=30)
    swept = reclaim.reap_expired(**TERMS, max_tasks=100)
    assert swept.is_paused
    assert swept.count == 0
    # Nobody came back: they are dead after all, and their tasks must not wait for ever.
    for runner in runners:
        lab.expire_lease(runner, ago_s=200)
    assert reclaim.reap_expired(**TERMS, max_tasks=100).requeued == 4


def test_two_sweeps_do_not_run_at_once(lab: Lab):
    lab.submit_one()
    runner = lab.runner_ids[0]
    lab.claim_attempt(runner)
    lab.expire_lease(runner)
    with _other_session_holds("sweep.reap"):
        assert reclaim.reap_expired(**TERMS, max_tasks=9).count == 0
    assert reclaim.reap_expired(**TERMS, max_tasks=9).count == 1


def _age(task_id: int, column: str, seconds: float) -> None:
    query(
        f"UPDATE active_tasks SET {column} = clock_timestamp() - make_interval(secs => %s)"
        " WHERE id = %s RETURNING id",
        seconds,
        task_id,
    )


class _other_session_holds(locked_elsewhere):  # noqa: N801 - reads as a phrase
    def __init__(self, key: str) -> None:
        super().__init__(0)
        self._key = key

    def _hold(self) -> None:
        try:
            with try_advisory_xact_lock(self._key) as is_ours:
                assert is_ours
                self._is_locked.set()
                self._may_end.wait(5)
        finally:
            connection.close()
