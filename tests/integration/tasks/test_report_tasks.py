"""Reports on attempts: what is accepted, from whom, how often, and what becomes of the task."""

import uuid
from datetime import timedelta

import pytest

from mitosis_protocol.enums import Outcome, ReportAnswer, TaskResultMessage
from tasks.enums import AttemptEnd
from tasks.new_task import RetryPolicy
from tasks.rows import Report, SettleOp
from tests.property.lab import Lab, lab_fixture, locked_elsewhere, query

lab = pytest.fixture(name="lab")(lab_fixture)

OK, DUPLICATE, STALE = ReportAnswer.OK, ReportAnswer.OK_DUPLICATE, ReportAnswer.STALE_ATTEMPT
INVALID, FORBIDDEN = ReportAnswer.INVALID, ReportAnswer.FORBIDDEN
RETRY_LATER = ReportAnswer.RETRY_LATER


def test_commit_moves_the_task_to_the_archive_with_its_outcome(lab: Lab):
    task_id = lab.submit_one(tags=[], labels=["x"])
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    op_id = uuid.uuid4()
    settled = lab.commit(attempt, runner, Outcome.FAILED, exit_status=3 * 256, op_id=op_id)
    assert (settled.answer, settled.action, settled.outcome) == (OK, "end", Outcome.FAILED)
    row = lab.task(task_id)
    assert row["where"] == "archived"
    assert (row["state"], row["outcome"], row["exit_status"]) == (3, Outcome.FAILED.code, 768)
    assert (row["attempt_id"], row["op_id"], row["labels"]) == (attempt, op_id, ["x"])
    [reporter] = query("SELECT uuid FROM runners WHERE id = %s", runner)
    assert row["reporter_uuid"] == reporter["uuid"]
    closed = lab.attempt(attempt)
    assert (closed["ending"], closed["op_id"]) == (AttemptEnd.COMMITTED.code, op_id)
    assert closed["ended_at"] is not None
    assert [kind for _, kind in lab.events(task_id)] == [0, 2, 8]


def test_commit_is_taken_from_leased_running_and_finishing(lab: Lab):
    runner = lab.runner_ids[0]
    for steps in ((), ("start",), ("start", "finish"), ("finish",)):
        lab.submit_one()
        attempt = lab.claim_attempt(runner)
        for step in steps:
            assert getattr(lab, step)(attempt, runner) is OK
        assert lab.commit(attempt, runner).answer is OK


def test_the_same_commit_again_is_a_duplicate_and_another_one_is_stale(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    op_id = uuid.uuid4()
    assert lab.commit(attempt, runner, op_id=op_id).answer is OK
    assert lab.commit(attempt, runner, op_id=op_id).answer is DUPLICATE
    assert lab.commit(attempt, runner, Outcome.FAILED).answer is STALE
    assert lab.task(task_id)["outcome"] == Outcome.SUCCEEDED.code


def test_nobody_reports_for_another_runner(lab: Lab):
    task_id = lab.submit_one()
    owner, thief = lab.runner_ids[:2]
    attempt = lab.claim_attempt(owner)
    for op in SettleOp:
        answer = lab.report(op, attempt, thief, outcome=Outcome.FAILED, exit_status=1).answer
        assert answer is FORBIDDEN
    assert lab.start(attempt, thief) is FORBIDDEN
    assert lab.finish(attempt, thief) is FORBIDDEN
    assert lab.adopt([attempt], thief) == [FORBIDDEN]
    row = lab.task(task_id)
    assert (row["state"], row["runner_id"], row["attempt_id"]) == (2, owner, attempt)
    assert lab.commit(attempt, owner).answer is OK


def test_an_attempt_that_never_was_is_invalid(lab: Lab):
    runner = lab.runner_ids[0]
    assert lab.commit(10**15, runner).answer is INVALID
    assert lab.start(10**15, runner) is INVALID
    assert lab.finish(10**15, runner) is INVALID


def test_a_late_result_of_a_lost_attempt_is_accepted_until_the_next_claim(lab: Lab):
    runner, other = lab.runner_ids[:2]
    for is_reclaimed in (False, True):
        task_id = lab.submit_one()
        attempt = lab.claim_attempt(runner)
        lab.start(attempt, runner)
        lab.expire_lease(runner)
        assert lab.reap() == ["requeue"]
        lab.renew_lease(runner)
        if is_reclaimed:
            newer = lab.claim_attempt(other)
            assert lab.commit(attempt, runner).answer is STALE
            assert lab.task(task_id)["attempt_id"] == newer
        else:
            assert lab.commit(attempt, runner).answer is OK
            assert lab.task(task_id)["outcome"] == Outcome.SUCCEEDED.code


def test_a_late_finish_takes_a_lost_attempt_back_with_its_charge(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    lab.start(attempt, runner)
    lab.expire_lease(runner)
    lab.reap()
    assert lab.task(task_id)["failures"] == 1
    assert lab.finish(attempt, runner) is OK
    row = lab.task(task_id)
    assert (row["state"], row["runner_id"], row["failures"]) == (4, runner, 0)
    assert lab.attempt(attempt)["ending"] is None
    assert lab.finish(attempt, runner) is DUPLICATE


def test_only_a_commit_or_a_finish_is_taken_from_a_lost_attempt(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    lab.expire_lease(runner)
    lab.reap()
    for op in (SettleOp.ABORT, SettleOp.RELEASE, SettleOp.FAILURE, SettleOp.LOST):
        assert lab.report(op, attempt, runner, charge=True, death_limit=3).answer is STALE
    assert lab.start(attempt, runner) is STALE
    row = lab.task(task_id)
    assert (row["state"], row["failures"], row["lost_runner_id"]) == (1, 0, runner)


def test_a_report_after_its_own_abort_is_stale(lab: Lab):
    runner = lab.runner_ids[0]
    lab.submit_one()
    attempt = lab.claim_attempt(runner)
    lab.report(SettleOp.ABORT, attempt, runner, charge=True)
    assert lab.commit(attempt, runner).answer is STALE
    assert lab.finish(attempt, runner) is STALE
    assert lab.adopt([attempt], runner) == [STALE]


def test_a_cancel_decides_the_outcome_of_every_later_report(lab: Lab):
    runner = lab.runner_ids[0]
    for op in (SettleOp.COMMIT, SettleOp.ABORT, SettleOp.FAILURE, SettleOp.LOST):
        task_id = lab.submit_one()
        attempt = lab.claim_attempt(runner)
        assert lab.cancel(task_id) == ["cancelling"]
        settled = lab.report(op, attempt, runner, outcome=Outcome.SUCCEEDED, exit_status=0)
        assert (settled.answer, settled.action) == (OK, "end")
        row = lab.task(task_id)
        assert (row["where"], row["outcome"], row["state"]) == ("archived", 4, 4)
        assert row["msg"] == TaskResultMessage.USER_CANCELLATION.code


def test_a_cancel_reported_by_the_runner_shows_as_cancelled_on_the_wire(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    assert lab.finish(attempt, runner, cancelled=True) is OK
    assert lab.finish(attempt, runner, cancelled=False) is INVALID
    msg = TaskResultMessage.RESOURCE_NOT_FOUND
    lab.commit(attempt, runner, Outcome.FAILED, exit_status=0, msg=msg)
    row = lab.task(task_id)
    assert (row["state"], row["outcome"], row["msg"]) == (4, Outcome.FAILED.code, msg.code)


def test_abort_charges_requeues_and_excludes(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    lab.start(attempt, runner)
    settled = lab.report(
        SettleOp.ABORT, attempt, runner, charge=True, exclude=True, reason="disk on fire"
    )
    assert (settled.action, settled.failures, settled.is_excluded) == ("requeue", 1, True)
    row = lab.task(task_id)
    assert (row["state"], row["runner_id"], row["lost_runner_id"]) == (1, None, None)
    assert (row["failures"], row["excluded_runner_ids"], row["started_at"]) == (1, [runner], None)
    closed = lab.attempt(attempt)
    assert (closed["ending"], closed["reason"]) == (AttemptEnd.FAILED.code, "disk on fire")
    assert closed["started_at"] is not None


def test_a_task_without_budget_ends_failed(lab: Lab):
    task_id = lab.submit_one(retry=RetryPolicy(max_failures=2))
    runner = lab.runner_ids[0]
    for expected in ("requeue", "end"):
        attempt = lab.claim_attempt(runner)
        assert lab.report(SettleOp.ABORT, attempt, runner, charge=True).action == expected
    row = lab.task(task_id)
    assert (row["where"], row["outcome"], row["failures"]) == ("archived", 1, 2)


def test_an_uncharged_abort_costs_nothing(lab: Lab):
    task_id = lab.submit_one(retry=RetryPolicy(max_failures=1))
    runner = lab.runner_ids[0]
    lab.report(SettleOp.ABORT, lab.claim_attempt(runner), runner, charge=False)
    row = lab.task(task_id)
    assert (row["state"], row["failures"]) == (1, 0)


def test_a_task_out_of_attempts_ends_failed(lab: Lab):
    task_id = lab.submit_one(retry=RetryPolicy(max_attempts=1))
    runner = lab.runner_ids[0]
    settled = lab.report(SettleOp.RELEASE, lab.claim_attempt(runner), runner)
    assert settled.action == "end"
    assert lab.task(task_id)["outcome"] == Outcome.FAILED.code


def test_release_is_free_and_only_before_the_start(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    assert lab.report(SettleOp.RELEASE, attempt, runner).action == "requeue"
    assert lab.task(task_id)["failures"] == 0
    attempt = lab.claim_attempt(runner)
    lab.start(attempt, runner)
    assert lab.report(SettleOp.RELEASE, attempt, runner).answer is INVALID
    assert lab.task(task_id)["state"] == 3


def test_a_failure_is_charged_once_and_the_runner_keeps_the_task(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    lab.start(attempt, runner)
    op_id = uuid.uuid4()
    crash = {"charge": True, "death_limit": 3, "reason": "SIGKILL", "worker_id": 4}
    first = lab.report(SettleOp.FAILURE, attempt, runner, op_id=op_id, **crash)
    assert (first.answer, first.action, first.failures) == (OK, "keep", 1)
    again = lab.report(SettleOp.FAILURE, attempt, runner, op_id=op_id, **crash)
    assert again.answer is DUPLICATE
    row = lab.task(task_id)
    assert (row["state"], row["failures"], row["runner_id"]) == (3, 1, runner)
    [evidence] = query("SELECT * FROM task_execution_failures WHERE task_id = %s", task_id)
    assert (evidence["failure_count"], evidence["error_messages"]) == (1, ["SIGKILL"])
    assert (evidence["worker_local_id"], evidence["runner_id"]) == (4, runner)


def test_a_runner_gives_a_task_up_at_its_death_limit(lab: Lab):
    task_id = lab.submit_one()
    runner, other = lab.runner_ids[:2]
    attempt = lab.claim_attempt(runner)
    crash = {"charge": True, "death_limit": 2, "reason": "SIGSEGV"}
    assert lab.report(SettleOp.FAILURE, attempt, runner, **crash).action == "keep"
    second = lab.report(SettleOp.FAILURE, attempt, runner, **crash)
    assert (second.action, second.is_excluded) == ("requeue", True)
    assert lab.claim(runner).tasks == ()
    attempt = lab.claim_attempt(other)
    assert lab.commit(attempt, other).answer is OK
    kept = query("SELECT failure_count FROM task_execution_failures WHERE task_id = %s", task_id)
    assert [row["failure_count"] for row in kept] == [2]


def test_the_texts_of_endless_crashes_are_bounded(lab: Lab):
    task_id = lab.submit_one(retry=RetryPolicy(max_failures=90))
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    for n in range(25):
        lab.report(
            SettleOp.FAILURE, attempt, runner, charge=True, death_limit=99, reason=f"crash {n}"
        )
    [row] = query("SELECT * FROM task_execution_failures WHERE task_id = %s", task_id)
    assert row["failure_count"] == 25
    assert row["error_messages"] == [f"crash {n}" for n in range(5, 25)]


def test_a_retry_policy_turns_failures_into_attempts(lab: Lab):
    retry = RetryPolicy(
        max_failures=3, retry_on={"exit_codes": [75], "signals": [9], "timeout": True}
    )
    runner = lab.runner_ids[0]
    cases = [
        (Outcome.FAILED, 75 * 256, "requeue"),
        (Outcome.FAILED, 9, "requeue"),
        (Outcome.FAILED, 9 + 128, "requeue"),
        (Outcome.TIMEOUT, 15, "requeue"),
        (Outcome.FAILED, 1 * 256, "end"),
        (Outcome.FAILED, 11, "end"),
        (Outcome.OOM, 9, "end"),
        (Outcome.SUCCEEDED, 0, "end"),
    ]
    for outcome, exit_status, expected in cases:
        task_id = lab.submit_one(retry=retry)
        attempt = lab.claim_attempt(runner)
        settled = lab.commit(attempt, runner, outcome, exit_status=exit_status)
        assert (settled.answer, settled.action) == (OK, expected), (outcome, exit_status)
        if expected == "requeue":
            assert lab.task(task_id)["failures"] == 1
            assert lab.attempt(attempt)["ending"] == AttemptEnd.RETRIED.code
            lab.cancel(task_id)


def test_retries_end_with_the_budget_and_keep_the_real_outcome(lab: Lab):
    retry = RetryPolicy(max_failures=2, retry_on={"exit_codes": [1]})
    task_id = lab.submit_one(retry=retry)
    runner = lab.runner_ids[0]
    op_id = uuid.uuid4()
    attempt = lab.claim_attempt(runner)
    assert lab.commit(attempt, runner, Outcome.FAILED, op_id=op_id).action == "requeue"
    assert lab.commit(attempt, runner, Outcome.FAILED, op_id=op_id).answer is DUPLICATE
    attempt = lab.claim_attempt(runner)
    assert lab.commit(attempt, runner, Outcome.FAILED).action == "end"
    row = lab.task(task_id)
    assert (row["outcome"], row["exit_status"], row["attempt"]) == (1, 256, 2)


def test_out_of_memory_is_tried_again_with_more(lab: Lab):
    limits = {"memory": 100, "on_oom": {"factor": 2, "max": 300}}
    task_id = lab.submit_one(limits=limits)
    runner = lab.runner_ids[0]
    for memory, action in ((200, "requeue"), (300, "requeue"), (None, "end")):
        settled = lab.commit(lab.claim_attempt(runner), runner, Outcome.OOM, exit_status=9)
        assert settled.action == action
        if memory is not None:
            found = query("SELECT limits->>'memory' AS m FROM active_tasks WHERE id=%s", task_id)
            assert int(found[0]["m"]) == memory
    assert lab.task(task_id)["outcome"] == Outcome.OOM.code


def test_backoff_doubles_with_jitter_up_to_its_cap(lab: Lab):
    task_id = lab.submit_one(retry=RetryPolicy(max_failures=9, backoff_s=8, backoff_max_s=20))
    runner = lab.runner_ids[0]
    for low, high in ((4, 8), (8, 16), (10, 20)):
        lab.report(SettleOp.ABORT, lab.claim_attempt(runner), runner, charge=True)
        [row] = query(
            "UPDATE active_tasks t SET not_before = clock_timestamp() FROM active_tasks o"
            " WHERE t.id = %s AND o.id = t.id RETURNING o.not_before - clock_timestamp() AS wait",
            task_id,
        )
        assert timedelta(seconds=low - 1) < row["wait"] <= timedelta(seconds=high)


def test_two_reports_on_one_attempt_in_one_batch_give_one_outcome(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    reports = [
        Report(
            attempt_id=attempt,
            runner_id=runner,
            op=SettleOp.COMMIT,
            op_id=uuid.uuid4(),
            outcome=outcome,
            exit_status=0,
        )
        for outcome in (Outcome.SUCCEEDED, Outcome.FAILED)
    ]
    first, second = lab.settle(reports)
    assert (first.answer, second.answer) == (OK, RETRY_LATER)
    assert lab.settle(reports)[1].answer is STALE
    assert lab.task(task_id)["outcome"] == Outcome.SUCCEEDED.code


def test_reports_of_many_runners_settle_in_one_statement(lab: Lab):
    lab.submit(6)
    held = [
        (task.attempt_id, runner)
        for runner in lab.runner_ids[:2]
        for task in lab.claim(runner, want=3).tasks
    ]
    forged = (held[0][0], lab.runner_ids[1])
    reports = [
        Report(
            attempt_id=attempt,
            runner_id=runner,
            op=SettleOp.COMMIT,
            op_id=uuid.uuid4(),
            outcome=Outcome.SUCCEEDED,
            exit_status=0,
        )
        for attempt, runner in [forged, *held[1:]]
    ]
    answers = [settled.answer for settled in lab.settle(reports)]
    assert answers == [FORBIDDEN, OK, OK, OK, OK, OK]


def test_each_attempt_of_a_batch_is_closed_as_its_own_report_says(lab: Lab):
    lab.submit(4)
    runner = lab.runner_ids[0]
    attempts = [task.attempt_id for task in lab.claim(runner, want=4).tasks]
    outcomes = (Outcome.FAILED, Outcome.SUCCEEDED, Outcome.TIMEOUT, Outcome.FAILED)
    reports = [
        Report(
            attempt_id=attempt,
            runner_id=runner,
            op=SettleOp.COMMIT,
            op_id=uuid.uuid4(),
            outcome=outcome,
            exit_status=256 * number,
            reason=f"report {number}" if number % 2 else None,
        )
        # Neither in the order of attempts nor in its reverse.
        for number, (attempt, outcome) in enumerate(
            zip(attempts[2:] + attempts[:2], outcomes, strict=True)
        )
    ]
    assert {settled.answer for settled in lab.settle(reports)} == {OK}
    closed = query(
        "SELECT id, op_id, outcome, exit_status, reason FROM task_attempts WHERE id = ANY (%s)",
        attempts,
    )
    assert {row.pop("id"): row for row in closed} == {
        report.attempt_id: {
            "op_id": report.op_id,
            "outcome": None if report.outcome is None else report.outcome.code,
            "exit_status": report.exit_status,
            "reason": report.reason,
        }
        for report in reports
    }


def test_a_report_on_a_locked_task_is_asked_to_come_back(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    with locked_elsewhere(task_id):
        assert lab.start(attempt, runner) is RETRY_LATER
        assert lab.finish(attempt, runner) is RETRY_LATER
        assert lab.commit(attempt, runner).answer is RETRY_LATER
    assert lab.commit(attempt, runner).answer is OK


def test_start_is_idempotent_and_tells_of_a_cancel(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    assert lab.start(attempt, runner) is OK
    assert lab.start(attempt, runner) is DUPLICATE
    row = lab.task(task_id)
    assert (row["state"], row["started_at"] is None) == (3, False)


def test_start_and_finish_are_heap_only_updates(lab: Lab):
    lab.submit(20)
    runner = lab.runner_ids[0]
    attempts = [task.attempt_id for task in lab.claim(runner, want=20).tasks]
    before = _hot_updates()
    for attempt in attempts:
        lab.start(attempt, runner)
        lab.finish(attempt, runner)
    after = _hot_updates()
    assert after - before >= 35


def _hot_updates() -> int:
    query("SELECT pg_stat_force_next_flush()")
    query("SELECT 1 AS one")
    [row] = query(
        "SELECT n_tup_hot_upd AS n FROM pg_stat_user_tables WHERE relname = 'active_tasks'"
    )
    return row["n"]
