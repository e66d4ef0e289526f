"""`depends_on`: release, upstream_failed and its cascade, cycles, edges made while tasks end."""

import threading
import uuid

import pytest
from django.db import connection, transaction

from core.errors import InvalidInput
from mitosis_protocol.enums import DependencyCondition, Outcome, ReportAnswer
from tasks.new_task import Dependency, NewTask
from tasks.rows import Report, SettleOp
from tasks.services.graph import is_met, topological_order
from tasks.services.submit import submit_tasks
from tests.property.lab import SPEC, Lab, lab_fixture, locked_elsewhere, query

lab = pytest.fixture(name="lab")(lab_fixture)

ON_OK, ON_ANY, ON_FAILED = (
    DependencyCondition.OK,
    DependencyCondition.ANY,
    DependencyCondition.FAILED,
)


def after(*upstream: int | uuid.UUID, condition: DependencyCondition = ON_OK):
    return tuple(Dependency(named, condition) for named in upstream)


def test_a_dependent_waits_and_is_released_by_success(lab: Lab):
    first, second = lab.submit_graph([(), after(0)])
    runner = lab.runner_ids[0]
    assert (lab.task(second)["state"], lab.task(second)["waiting_on"]) == (0, 1)
    [task] = lab.claim(runner, want=9).tasks
    assert task.task_id == first
    lab.commit(task.attempt_id, runner)
    assert (lab.task(second)["state"], lab.task(second)["waiting_on"]) == (1, 0)
    assert [kind for _, kind in lab.events(second)] == [0, 1]
    assert [task.task_id for task in lab.claim(runner, want=9).tasks] == [second]


@pytest.mark.parametrize("condition", list(DependencyCondition))
@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.UPSTREAM_FAILED])
def test_every_condition_meets_every_outcome_as_the_table_says(
    lab: Lab, condition: DependencyCondition, outcome: Outcome
):
    first, second = lab.submit_graph([(), after(0, condition=condition)])
    runner = lab.runner_ids[0]
    lab.commit(lab.claim_attempt(runner), runner, outcome)
    assert lab.task(first)["outcome"] == outcome.code
    row = lab.task(second)
    if is_met(condition, outcome):
        assert (row["where"], row["state"]) == ("active", 1)
    else:
        assert (row["where"], row["outcome"]) == ("archived", Outcome.UPSTREAM_FAILED.code)


def test_a_task_with_many_upstream_waits_for_the_last(lab: Lab):
    *upstream, last = lab.submit_graph([(), (), (), after(0, 1, 2)])
    runner = lab.runner_ids[0]
    for left in (2, 1, 0):
        lab.commit(lab.claim_attempt(runner), runner)
        row = lab.task(last)
        assert (row["waiting_on"], row["state"]) == (left, 0 if left else 1)
    assert len(upstream) == 3


def test_one_batch_can_end_all_upstream_tasks_at_once(lab: Lab):
    *_, last = lab.submit_graph([(), (), after(0, 1)])
    runner = lab.runner_ids[0]
    tasks = lab.claim(runner, want=2).tasks
    lab.settle([_commit(task.attempt_id, runner) for task in tasks])
    assert lab.task(last)["state"] == 1


def test_a_failure_cascades_down_the_whole_chain_in_one_statement(lab: Lab):
    chain = lab.submit_graph([(), *(after(n) for n in range(30))], in_suite=True)
    runner = lab.runner_ids[0]
    [task] = lab.claim_from_suite(runner).tasks
    lab.commit(task.attempt_id, runner, Outcome.FAILED)
    outcomes = [lab.task(task_id)["outcome"] for task_id in chain]
    assert outcomes == [Outcome.FAILED.code] + [Outcome.UPSTREAM_FAILED.code] * 30
    assert lab.counts() == lab.real_counts()
    assert lab.counts()["pending"] == 0


def test_a_cascade_releases_those_that_waited_for_a_failure(lab: Lab):
    _, doomed, cleanup, always, after_doomed = lab.submit_graph(
        [
            (),
            after(0),
            after(1, condition=ON_FAILED),
            after(1, condition=ON_ANY),
            after(1),
        ]
    )
    runner = lab.runner_ids[0]
    lab.commit(lab.claim_attempt(runner), runner, Outcome.FAILED)
    assert lab.task(doomed)["outcome"] == Outcome.UPSTREAM_FAILED.code
    assert lab.task(after_doomed)["outcome"] == Outcome.UPSTREAM_FAILED.code
    assert [lab.task(task_id)["state"] for task_id in (cleanup, always)] == [1, 1]


def test_a_diamond_with_one_failed_side_ends_once(lab: Lab):
    _, left, right, bottom = lab.submit_graph([(), after(0), after(0), after(1, 2)])
    runner = lab.runner_ids[0]
    lab.commit(lab.claim_attempt(runner), runner)
    first, second = lab.claim(runner, want=2).tasks
    lab.settle(
        [
            _commit(first.attempt_id, runner, Outcome.FAILED),
            _commit(second.attempt_id, runner),
        ]
    )
    assert lab.task(bottom)["outcome"] == Outcome.UPSTREAM_FAILED.code
    assert {lab.task(left)["where"], lab.task(right)["where"]} == {"archived"}
    assert [kind for _, kind in lab.events(bottom)] == [0, 8]


def test_a_cancel_cascades_and_a_cancelled_dependent_stays_cancelled(lab: Lab):
    first, second, third = lab.submit_graph([(), after(0), after(1)])
    assert lab.cancel(first, third) == ["end", "end"]
    assert lab.task(first)["outcome"] == Outcome.CANCELLED.code
    assert lab.task(second)["outcome"] == Outcome.UPSTREAM_FAILED.code
    assert lab.task(third)["outcome"] == Outcome.CANCELLED.code


def test_a_dependent_that_ended_before_does_not_fall_again(lab: Lab):
    first, second, third = lab.submit_graph([(), after(0), after(1, condition=ON_ANY)])
    runner = lab.runner_ids[0]
    assert lab.cancel(second) == ["end"]
    assert lab.task(third)["state"] == 1
    attempts = {task.task_id: task.attempt_id for task in lab.claim(runner, want=9).tasks}
    lab.commit(attempts[first], runner, Outcome.FAILED)
    row = lab.task(third)
    assert (row["state"], row["waiting_on"]) == (2, 0)
    assert lab.task(second)["outcome"] == Outcome.CANCELLED.code


def test_rows_may_name_later_rows_and_ids_still_grow_downstream(lab: Lab):
    last, middle, first = lab.submit_graph([after(1), after(2), ()])
    assert first < middle < last
    numbers = [lab.task(task_id)["number"] for task_id in (last, middle, first)]
    assert numbers == sorted(numbers)


def test_cycles_and_strangers_are_refused_and_leave_nothing(lab: Lab):
    for graph, words in (
        ([after(1), after(0)], "cycle"),
        ([after(0)], "cycle"),
        ([after(7)], "does not exist"),
        ([after(uuid.uuid4())], "not in this group"),
        ([(), after(0, 0)], "twice"),
    ):
        with pytest.raises(InvalidInput, match=words):
            lab.submit_graph(graph)
    assert query("SELECT id FROM active_tasks WHERE group_id = %s", lab.group_id) == []


def test_the_database_refuses_an_edge_that_goes_back(lab: Lab):
    first, second = (ref.id for ref in lab.submit(2))
    with (
        pytest.raises(Exception, match="task_dependencies_acyclic"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO task_dependencies (task_id, upstream_id, condition) VALUES (%s, %s, 0)",
            [first, second],
        )


def test_a_task_of_another_group_or_suite_cannot_be_named(lab: Lab):
    other = Lab(runners=1)
    foreign = other.submit(1)[0].uuid
    managed = lab.submit(1, in_suite=True)[0].uuid
    for named in (foreign, managed):
        with pytest.raises(InvalidInput, match="not in this group"):
            lab.submit_graph([after(named)])


def test_an_upstream_that_has_ended_is_settled_at_submit(lab: Lab):
    runner = lab.runner_ids[0]
    good, bad = lab.submit(2)
    for outcome in (Outcome.SUCCEEDED, Outcome.FAILED):
        lab.commit(lab.claim_attempt(runner), runner, outcome)
    ready, doomed, below = lab.submit_graph([after(good.uuid), after(bad.uuid), after(1)])
    assert (lab.task(ready)["state"], lab.task(ready)["waiting_on"]) == (1, 0)
    assert lab.task(doomed)["outcome"] == Outcome.UPSTREAM_FAILED.code
    assert lab.task(below)["outcome"] == Outcome.UPSTREAM_FAILED.code


def test_an_edge_to_a_held_task_is_released_when_it_ends(lab: Lab):
    runner = lab.runner_ids[0]
    [upstream] = lab.submit(1)
    attempt = lab.claim_attempt(runner)
    [waiting] = lab.submit_graph([after(upstream.uuid)])
    assert lab.task(waiting)["state"] == 0
    assert lab.task(upstream.id)["dependents"] == 1
    lab.commit(attempt, runner)
    assert lab.task(waiting)["state"] == 1


def test_a_task_cannot_end_while_a_submission_ties_itself_to_it(lab: Lab):
    runner = lab.runner_ids[0]
    [upstream] = lab.submit(1)
    attempt = lab.claim_attempt(runner)
    submitted: list[int] = []
    is_tied, may_commit = threading.Event(), threading.Event()

    def submit_slowly() -> None:
        try:
            with transaction.atomic():
                submitted.extend(lab.submit_graph([after(upstream.uuid)]))
                is_tied.set()
                may_commit.wait(5)
        finally:
            connection.close()

    thread = threading.Thread(target=submit_slowly)
    thread.start()
    assert is_tied.wait(5)
    assert lab.commit(attempt, runner).answer is ReportAnswer.RETRY_LATER
    may_commit.set()
    thread.join(5)
    assert lab.commit(attempt, runner).answer is ReportAnswer.OK
    assert lab.task(submitted[0])["state"] == 1


def test_a_commit_comes_back_when_its_dependent_is_locked(lab: Lab):
    first, second = lab.submit_graph([(), after(0)])
    lonely = lab.submit_one()
    runner = lab.runner_ids[0]
    one, two = lab.claim(runner, want=2).tasks
    reports = [_commit(one.attempt_id, runner), _commit(two.attempt_id, runner)]
    with locked_elsewhere(second):
        answers = [settled.answer for settled in lab.settle(reports)]
    assert answers == [ReportAnswer.RETRY_LATER, ReportAnswer.OK]
    assert lab.task(first)["where"] == "active"
    assert lab.task(lonely)["where"] == "archived"
    assert lab.settle(reports[:1])[0].answer is ReportAnswer.OK
    assert lab.task(second)["state"] == 1


def test_an_edge_newer_than_the_snapshot_makes_the_commit_come_back(lab: Lab):
    """The row says two dependents, the statement sees one edge: it must not release by halves."""
    first, second = lab.submit_graph([(), after(0)])
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    query("UPDATE active_tasks SET dependents = 2 WHERE id = %s RETURNING id", first)
    assert lab.commit(attempt, runner).answer is ReportAnswer.RETRY_LATER
    assert lab.task(second)["state"] == 0
    query("UPDATE active_tasks SET dependents = 1 WHERE id = %s RETURNING id", first)
    assert lab.commit(attempt, runner).answer is ReportAnswer.OK


def test_a_wide_fan_is_released_in_one_statement(lab: Lab):
    graph = [(), *(after(0) for _ in range(500))]
    tasks = [NewTask(spec=SPEC, timeout_s=60, depends_on=named) for named in graph]
    refs = submit_tasks(target=lab.target(), creator_id=lab.creator_id, tasks=tasks)
    runner = lab.runner_ids[0]
    lab.commit(lab.claim_attempt(runner), runner)
    [row] = query(
        "SELECT count(*) AS n FROM active_tasks WHERE group_id = %s AND state = 1", lab.group_id
    )
    assert row["n"] == len(refs) - 1


def test_topological_order_keeps_rows_in_place_where_it_can():
    assert topological_order([[], [], []]) == [0, 1, 2]
    assert topological_order([[2], [], [1]]) == [1, 2, 0]


def _commit(attempt: int, runner: int, outcome: Outcome = Outcome.SUCCEEDED):
    return Report(
        attempt_id=attempt,
        runner_id=runner,
        op=SettleOp.COMMIT,
        op_id=uuid.uuid4(),
        outcome=outcome,
        exit_status=0 if outcome is Outcome.SUCCEEDED else 256,
    )
